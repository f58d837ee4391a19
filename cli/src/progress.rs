//! Progress on stderr, on a terminal only.

use crate::output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Something that takes a while, and how far it is.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Work of which nobody knows how much it is: what is being done, and for how long.
    pub fn spinner(what: impl Into<String>) -> Self {
        Self::of(
            ProgressBar::no_length(),
            "{spinner} {elapsed} {wide_msg}",
            what.into(),
        )
    }

    /// Requests answered, of those known to be needed so far.
    pub fn requests(what: impl Into<String>) -> Self {
        Self::of(
            ProgressBar::new(0),
            "{msg} [{bar:30}] {pos}/{len} ({elapsed})",
            what.into(),
        )
    }

    fn of(bar: ProgressBar, template: &str, what: String) -> Self {
        if !io::stderr().is_terminal() {
            return Self { bar: None };
        }
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar) }
    }

    /// What is being done now.
    pub fn doing(&self, what: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.into());
        }
    }

    /// A line that stays, above the progress.
    pub fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        }
    }
}

impl poolwright_driver::Progress for Progress {
    fn advanced(&self, answered: u64, known: u64) {
        if let Some(bar) = &self.bar {
            bar.inc_length(known);
            bar.inc(answered);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
