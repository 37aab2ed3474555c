"""Are slow workers named, soon and rightly, and is the promised gain of a repair true?"""
