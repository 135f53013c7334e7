"""Where each mask's ranges end, and texts that resemble its own."""

from __future__ import annotations

# Messages that share most of their words with a mask's, from the same place.
NEAR: dict[str, tuple[str, ...]] = {
    "ds-cpu-needs-ipex": (
        "XPU_Accelerator requires intel_extension_for_deepspeed, which is not installed on this "
        "system.",
    ),
    "ds-elastic-agent-import-torch24": (
        "cannot import name '_get_socket' from 'torch.distributed.elastic.agent.server.api'",
        "cannot import name 'logger' from 'torch.distributed.elastic.agent.server.api'",
    ),
    "fsdp2-tied-embeddings-torch213": (
        "Parameter 'model.embed_tokens.weight' is shared with a parameter of another module",
    ),
    "get-train-sampler-dataset-arg": (
        "SFTTrainer._get_train_sampler() takes 1 positional argument but 2 were given",
        "GRPOTrainer._get_train_sampler() takes 2 positional arguments but 3 were given",
    ),
    "odpo-maybe-log-learning-rate": (
        "OnlineDPOTrainer._maybe_log_save_evaluate() got an unexpected keyword argument 'metrics'",
        "OnlineDPOTrainer._maybe_log_save_evaluate() takes 8 positional arguments but 9 were given",
    ),
    "peft-boft-setuptools": ("No module named 'setuptools_scm'",),
    "peft-encoderdecodercache-old-tf": (
        "Failed to import transformers.trainer because of the following error (look up to see its "
        "traceback):\ncannot import name 'HybridCache' from 'transformers'",
    ),
    "peft-hybridcache-tf5": (
        "Failed to import trl.trainer.grpo_trainer because of the following error (look up to see "
        "its traceback):\ncannot import name 'EncoderDecoderCache' from 'transformers'",
    ),
    "ppo-optimizer-cls-and-kwargs": (
        "'GRPOTrainer' object has no attribute 'optimizer_cls_and_kwargs'",
        "'PPOv2Trainer' object has no attribute 'optimizer'",
    ),
    "tf452-parallel-styles-torch24": ("argument of type 'int' is not iterable",),
    "tf510-deepspeed-engine-none": (
        "'NoneType' object has no attribute 'step'",
        "engine: no DeepSpeed engine but a DistributedDataParallel",
    ),
    "trl-fsdpmodule-torch25": (
        "cannot import name 'FSDPModule' from 'torch.distributed._composable.fsdp'",
    ),
    "trl-optional-deps-truthy-tf53": (
        "Failed to import transformers.trainer because of the following error (look up to see its "
        "traceback):\nNo module named 'weave'",
        "Failed to import trl.trainer.grpo_trainer because of the following error (look up to see "
        "its traceback):\ncannot import name 'weave' from 'trl'",
        # met with TRL 0.11.4, whose undeclared rich came with earlier releases of another package
        "Failed to import trl.trainer.ppov2_trainer because of the following error (look up to see "
        "its traceback):\nNo module named 'rich'",
    ),
    "trl-triton-setuptools-torch26": ("No module named 'setuptools_scm'",),
    "trl-warnings-issued-tf51": ("'Qwen2ForCausalLM' object has no attribute 'warnings'",),
    "unwrap-model-keep-torch-compile": (
        "Accelerator.unwrap_model() got an unexpected keyword argument 'keep_fp32_wrapper'",
    ),
    "zero3-classifier-head-tf520": (
        "The size of tensor a (4) must match the size of tensor b (640) at non-singleton "
        "dimension 1",
    ),
    "zero3-classifiers-empty-tf454": ("loaded-weights: policy: nothing held",),
    "zero-no-sync-grad-accum": (
        "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 1",
    ),
}


# Per mask, releases put into the first stack on record: just inside its ranges, and just outside.
EDGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "accelerator-init-order-deepspeed": (
        ("accelerate==1.0.0", "accelerate==1.8.1"),
        ("accelerate==0.34.2", "accelerate==1.9.0"),
    ),
    "ds-cpu-needs-ipex": (("deepspeed==0.14.0",), ("deepspeed==0.14.1",)),
    "ds-elastic-agent-import-torch24": (
        ("deepspeed==0.14.1", "deepspeed==0.14.3", "torch==2.15.0"),
        ("deepspeed==0.14.4", "torch==2.3.1"),
    ),
    "fsdp2-ignored-params-torch26": (
        ("trl==0.29.0", "trl==1.13.0"),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    "fsdp2-tied-embeddings-torch213": (
        ("torch==2.12.0", "torch==2.15.0"),
        ("accelerate==1.13.0", "accelerate==1.15.0", "torch==2.11.0"),
    ),
    "get-train-sampler-dataset-arg": (
        ("trl==0.15.0", "transformers==4.52.1", "transformers==4.57.6"),
        ("trl==0.14.0", "trl==0.17.0", "transformers==4.51.3"),
    ),
    "odpo-maybe-log-learning-rate": (
        ("transformers==4.51.0",),
        ("trl==0.12.2", "trl==0.16.1", "transformers==4.50.3", "torch==2.10.0"),
    ),
    "peft-encoderdecodercache-old-tf": (
        ("peft==0.15.2", "transformers==4.42.4"),
        ("peft==0.13.2", "transformers==4.43.0"),
    ),
    "peft-hybridcache-tf5": (
        ("peft==0.16.0", "transformers==5.2.0"),
        ("peft==0.15.2", "peft==0.18.0", "transformers==4.57.6", "trl==0.27.0"),
    ),
    "ppo-optimizer-cls-and-kwargs": (
        ("trl==0.9.6", "transformers==4.47.0"),
        ("trl==0.12.0", "transformers==4.46.3"),
    ),
    "peft-boft-setuptools": (
        ("peft==0.11.0", "trl==0.16.1"),
        ("peft==0.10.0", "peft==0.12.0", "python==3.12"),
    ),
    "ppo-exportablestate-old-tf": (
        ("trl==0.11.0", "transformers==4.40.2"),
        ("trl==0.10.1", "trl==0.12.0", "transformers==4.41.0"),
    ),
    "tf452-parallel-styles-torch24": (
        ("transformers==4.52.3", "torch==2.3.1"),
        ("transformers==4.52.1", "transformers==4.53.0", "torch==2.5.1", "torch==2.2.2"),
    ),
    "tf510-deepspeed-engine-none": (
        ("trl==1.16.0",),
        ("transformers==5.0.0", "transformers==5.2.0"),
    ),
    "trl-fsdpmodule-torch25": (
        ("trl==0.29.0", "trl==1.13.0", "torch==2.5.1"),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.6.0"),
    ),
    "trl-optional-deps-truthy-tf53": (
        ("trl==0.14.0", "transformers==5.23.0"),
        ("trl==0.29.0", "transformers==5.2.0"),
    ),
    "trl-requests-undeclared": (
        ("trl==1.13.0", "trl==0.29.1", "transformers==5.23.0"),
        ("trl==1.14.2", "trl==0.27.2", "transformers==5.17.0"),
    ),
    "trl-triton-setuptools-torch26": (
        ("torch==2.4.1",),
        ("trl==1.15.0", "torch==2.10.0", "python==3.12"),
    ),
    "trl-warnings-issued-tf51": (
        ("trl==0.14.0", "trl==0.27.1", "transformers==5.1.0"),
        ("trl==0.27.2", "trl==0.28.0", "transformers==5.0.0"),
    ),
    "unwrap-model-keep-torch-compile": (
        ("accelerate==0.34.2", "transformers==4.52.1", "trl==0.17.0"),
        ("accelerate==1.3.0", "transformers==4.51.3", "trl==0.16.1"),
    ),
    "zero3-classifier-head-tf520": (
        ("trl==0.28.0",),
        ("transformers==5.1.0", "transformers==5.16.1", "transformers==4.57.6"),
    ),
    "zero3-classifiers-empty-tf454": (
        ("deepspeed==0.15.1", "deepspeed==0.17.5", "transformers==4.54.0"),
        ("deepspeed==0.14.4", "deepspeed==0.17.6", "transformers==4.53.3"),
    ),
    "zero-no-sync-grad-accum": (
        ("deepspeed==0.16.0",),
        ("deepspeed==0.15.4", "transformers==4.47.1", "accelerate==1.9.0", "trl==0.12.2"),
    ),
}


# The same, put into the first stack on record for a trainer whose releases are others.
EDGES_OF_TRAINERS: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("accelerator-init-order-deepspeed", "RLOO"): (
        ("trl==0.9.6", "accelerate==1.0.0"),
        ("trl==0.22.0", "accelerate==0.34.2", "accelerate==1.9.0"),
    ),
    ("fsdp2-ignored-params-torch26", "DPO"): (
        ("trl==0.29.0",),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    ("fsdp2-ignored-params-torch26", "RLOO"): (
        ("trl==0.29.0",),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    ("fsdp2-ignored-params-torch26", "KTO"): (
        ("trl==1.3.0",),
        ("trl==1.2.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    ("fsdp2-reference-as-fsdp1", "DPO"): (
        ("trl==0.16.0", "trl==0.18.0"),
        ("trl==0.15.2", "trl==0.29.0"),
    ),
    ("fsdp2-reference-as-fsdp1", "RLOO"): (("trl==0.22.0",), ("trl==0.21.0", "trl==0.29.0")),
    ("fsdp2-reference-as-fsdp1", "Online DPO"): (("trl==0.24.0",), ("trl==0.23.1", "trl==0.29.0")),
    ("get-train-sampler-dataset-arg", "KTO"): (
        ("trl==0.8.0", "transformers==4.52.0", "transformers==5.0.0"),
        ("trl==0.18.0", "transformers==4.51.3"),
    ),
    ("get-train-sampler-dataset-arg", "BCO"): (
        ("trl==0.10.1", "transformers==4.52.0", "transformers==5.0.0"),
        ("trl==0.18.0", "transformers==4.51.3"),
    ),
    ("odpo-maybe-log-learning-rate", "XPO"): (
        ("trl==0.13.0", "transformers==4.51.0", "transformers==4.57.6"),
        ("trl==0.16.1", "transformers==4.50.3", "transformers==5.0.0"),
    ),
    ("odpo-maybe-log-learning-rate", "Nash-MD"): (
        ("trl==0.13.0", "transformers==4.51.0", "transformers==4.53.3"),
        ("trl==0.16.1", "transformers==4.50.3", "transformers==4.54.0"),
    ),
    ("ppo-optimizer-cls-and-kwargs", "RLOO"): (
        ("trl==0.9.6",),
        ("trl==0.12.0", "transformers==4.46.3"),
    ),
    ("trl-optional-deps-truthy-tf53", "RLOO"): (
        ("trl==0.22.0", "transformers==5.23.0"),
        ("trl==0.21.0", "trl==0.29.0", "transformers==5.2.0"),
    ),
    ("trl-optional-deps-truthy-tf53", "DPO"): (
        ("trl==0.28.0",),
        ("trl==0.22.2", "trl==0.29.0", "transformers==5.2.0"),
    ),
    ("trl-optional-deps-truthy-tf53", "SFT"): (("trl==0.11.0",), ("trl==0.10.1", "trl==0.12.0")),
    ("trl-optional-deps-truthy-tf53", "BCO"): (
        ("trl==0.24.0", "trl==0.28.0"),
        ("trl==0.16.1", "trl==0.29.0"),
    ),
    ("trl-optional-deps-truthy-tf53", "Online DPO"): (("trl==0.26.0",), ("trl==0.29.0",)),
    ("trl-warnings-issued-tf51", "KTO"): (
        ("trl==0.13.0", "trl==0.27.1", "transformers==5.1.0"),
        ("trl==0.12.0", "trl==0.27.2", "transformers==5.0.0"),
    ),
    ("trl-warnings-issued-tf51", "RLOO"): (("trl==0.22.0",), ("trl==0.21.0", "trl==0.27.2")),
    ("trl-warnings-issued-tf51", "DPO"): (("trl==0.23.0",), ("trl==0.22.2", "trl==0.27.2")),
    ("trl-warnings-issued-tf51", "Reward"): (
        ("trl==0.13.0", "trl==0.23.1"),
        ("trl==0.12.0", "trl==0.24.0", "transformers==5.0.0"),
    ),
    ("unwrap-model-keep-torch-compile", "BCO"): (("accelerate==0.34.2",), ("accelerate==1.3.0",)),
    ("unwrap-model-keep-torch-compile", "CPO"): (
        ("trl==0.9.6", "transformers==4.52.1", "accelerate==0.34.2"),
        ("transformers==4.51.3", "accelerate==1.3.0"),
    ),
    ("unwrap-model-keep-torch-compile", "ORPO"): (
        ("trl==0.9.6", "transformers==4.52.1", "accelerate==0.34.2"),
        ("transformers==4.51.3", "accelerate==1.3.0"),
    ),
    ("unwrap-model-keep-torch-compile", "RLOO"): (
        ("trl==0.22.2",),
        ("trl==0.21.0", "accelerate==1.3.0"),
    ),
    ("zero3-register-hooks-rename", "GKD"): (
        ("trl==0.11.4",),
        ("trl==0.16.0", "deepspeed==0.16.3"),
    ),
    ("zero3-register-hooks-rename", "Online DPO"): (
        ("trl==0.10.1", "trl==0.12.2"),
        ("trl==0.14.0", "deepspeed==0.16.3"),
    ),
    ("zero3-register-hooks-rename", "RLOO"): (
        ("trl==0.12.2",),
        ("trl==0.16.0", "deepspeed==0.16.3"),
    ),
    ("zero3-register-hooks-rename", "XPO"): (
        ("trl==0.11.4",),
        ("trl==0.16.0", "deepspeed==0.16.3"),
    ),
}
