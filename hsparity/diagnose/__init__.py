"""Why two sides differ, from what the captures show: fingerprints of the error, weighed against named causes."""
