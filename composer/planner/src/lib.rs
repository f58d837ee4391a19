//! From needs and a snapshot to a plan with its reasons, and an independent check of every plan. Pure.
