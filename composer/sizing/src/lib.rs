//! From a model and a task to bytes per GPU, and to the GPU sets that fit. Pure: no IO, no clock.
//!
//! ```text
//! name, size or config.json ──► Model ─┐
//! task and settings ──────────► Job ───┼──► Estimate (terms, point, safe) ──► Fit (sets, ranked) ──► Need
//! GPU kinds on offer ─────────► Offer ─┘
//! ```
//!
//! * [`catalogue`], [`size_class`], [`hub_config`]: a [`model::Model`] from a name, a bare size such as
//!   `70B`, or a Hugging Face `config.json`.
//! * [`job`]: what is done with it, with usual settings for every [`need::Task`].
//! * [`training`], [`inference`], [`overhead`]: what one GPU must hold, as named terms with a middle
//!   estimate and a safe bound. Constants are data with their evidence: [`constants`].
//! * [`parallel`]: how a training run is laid out over GPUs.
//! * [`fit`]: which sets of GPUs can hold it, ranked, and why the others cannot; [`roofline`]: how fast they are.
//! * [`need`]: the value that the planner takes; [`phases`]: one for each part of a run.
//! * [`rule`]: Liqid's published rule and tables; [`comparison`]: beside our own; [`energy`]: of a year.
//! * [`batch`]: many cases from a CSV table; [`calibration`]: measured peaks correct constants.
//!
//! ```
//! use poolwright_model::profile::Profiles;
//! use poolwright_sizing::{Catalogue, Job, Limits, Offer, Task, fit};
//!
//! let model = Catalogue::builtin().resolve("Llama-3.1-8B")?;
//! let offers: Vec<Offer> = Profiles::builtin().all().iter().map(|k| Offer::of(k, None)).collect();
//! let fit = fit::fit(&model, &Job::of(Task::Infer), &offers, Limits::default())?;
//! assert_eq!(fit.candidates[0].set.count, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapters;
pub mod anatomy;
pub mod batch;
pub mod calibration;
pub mod catalogue;
pub mod comparison;
pub mod constants;
pub mod csv;
mod eager;
pub mod energy;
pub mod error;
pub mod estimate;
pub mod features;
pub mod fit;
pub mod hub_config;
pub mod inference;
pub mod job;
mod layer;
pub mod linear;
pub mod model;
mod named;
pub mod need;
pub mod overhead;
pub mod parallel;
pub mod phases;
pub mod roofline;
pub mod rule;
pub mod settings;
pub mod size_class;
pub mod training;
pub mod version;

pub use calibration::Calibration;
pub use catalogue::Catalogue;
pub use csv::CsvError;
pub use error::{DataError, SizingError, UnknownModel};
pub use estimate::{Estimate, Term};
pub use fit::{Fit, Limits, Offer};
pub use job::{Inference, Job, Training};
pub use model::Model;
pub use need::{GpuSet, Need, Task};
pub use parallel::Parallel;
pub use rule::Rule;
