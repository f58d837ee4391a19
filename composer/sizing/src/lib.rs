//! From a model and a task to bytes per GPU, and to the GPU sets that fit. Pure.

pub mod need;
