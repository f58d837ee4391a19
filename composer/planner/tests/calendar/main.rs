//! A manager's calendar as a problem over time: the problem has the demands, and the manager's actions are a plan of
//! it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

#[path = "../support/mod.rs"]
mod support;

mod any_calendar;
mod said;
mod week;
