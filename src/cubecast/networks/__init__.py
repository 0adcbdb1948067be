"""Physical networks: nodes, links, delays and bandwidths, and the shortest-path routes through them."""
