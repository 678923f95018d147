"""`hsparity audit`: are the states in a dataset the ones a server will feed the draft?"""
