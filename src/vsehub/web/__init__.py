"""Pages and an interface to look at a data set or a reranking: plain beside corrected search, and hubs."""
