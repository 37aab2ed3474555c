"""Are slow workers, servers and links named, soon and rightly?"""
