"""A thread registers a post-condition that does not hold when the scenario has ended."""

import threading


def scenario(rank):
    rank.check("started", True, "")
    main = threading.current_thread()
    after = threading.Event()

    def look():
        after.wait()
        rank.check("kept", False, "it was lost")

    threading.Thread(target=look).start()
    assert main.is_alive()
    after.set()
