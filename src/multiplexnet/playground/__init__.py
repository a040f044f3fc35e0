"""The playground: a page on this machine where rules are typed and looked at.

The server answers questions of the page. It has no idea of rules itself: every question is worked out in a worker
process with a limit of time and memory, by the same library calls that a program would make.
"""
