"""One engine checked alone: its captured last state, read through the final norm and the lm_head, against its
own prompt log-probabilities."""
