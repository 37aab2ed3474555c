"""The page about advice, and its sentences, from the content of advice.json."""
