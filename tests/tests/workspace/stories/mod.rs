//! The manager over an emulated rack, in process: what people do with it, what goes wrong meanwhile, and what
//! runs by the clock. In each story the rack itself says what is bound, and the manager must say the same.
//!
//! Time is paused: it passes when everybody waits, so a day takes a moment, and the same story takes the same
//! course each time.

mod calendar;
mod kit;

mod adopting;
mod ahead;
mod attaching_early;
mod audited;
mod closed_meanwhile;
mod closing;
mod coming_and_going;
mod composing;
mod conflicts;
mod copied_directory;
mod damaged;
mod drifting;
mod elastic;
mod every_step;
mod failing;
mod forecasting;
mod forgetting;
mod frozen;
mod gone;
mod hearing;
mod keeping_ahead;
mod left_behind;
mod lending;
mod limiting;
mod locating;
mod making_way;
mod managers;
mod marking;
mod measuring;
mod naming;
mod noting;
mod openings;
mod orphaned_compositions;
mod owing;
mod partial;
mod pausing;
mod phases;
mod polling;
mod promised;
mod pushed;
mod quarantine;
mod queueing;
mod recalled;
mod recorded;
mod relocating;
mod renumbering;
mod repairing;
mod requests;
mod restarting_bmcs;
mod restarts;
mod retiring;
mod rotating;
mod scale;
mod schedule_trouble;
mod schedules;
mod side_by_side;
mod silence;
mod stale;
mod tenants;
mod tending;
mod told;
mod told_back;
mod trouble;
mod turns;
mod undoing;
mod uplinks;
mod vanishing;
mod weighed;
