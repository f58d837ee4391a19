//! A manager's calendar as a problem over time: the problem has the demands, and the manager's actions are a plan of
//! it.

mod any_calendar;
mod said;
mod week;
