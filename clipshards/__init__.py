"""clipshards: a video question-answering data set on the Hub → shards with pre-decoded frames."""

__version__ = "0.1.0"
