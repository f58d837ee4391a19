//! Sizing: predictions against measurements, published figures and closed formulas.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod calibration;
mod cases;
mod formula;
mod gathered;
mod layouts;
mod left_out;
mod logs;
mod phases;
mod properties;
mod sets;
mod speed;
