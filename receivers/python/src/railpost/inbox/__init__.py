"""The inbox: what every store agrees on. The stores are modules of `railpost`, such as `railpost.sqlite`."""
