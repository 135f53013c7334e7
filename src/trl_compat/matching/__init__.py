"""Does a record apply to what someone has and uses?"""
