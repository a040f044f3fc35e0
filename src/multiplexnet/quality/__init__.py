"""How good a made table is: does it obey, look real, serve for training, and copy nobody?"""
