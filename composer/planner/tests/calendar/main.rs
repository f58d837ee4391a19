//! A manager's calendar as a problem over time: it says what is wanted, and what the manager does is a plan of it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

#[path = "../support/mod.rs"]
mod support;

mod any_calendar;
mod said;
mod week;
