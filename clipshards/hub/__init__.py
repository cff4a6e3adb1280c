"""Where the bytes come from: a Hub data set at a commit, or a local folder of the same shape."""
