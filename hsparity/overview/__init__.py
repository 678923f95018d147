"""Many results side by side: which engines, releases, settings and models stand how. Needs no torch."""
