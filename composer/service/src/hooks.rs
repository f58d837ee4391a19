//! What is run beside the pool when the calendar takes something back: commands of the operator's, known by name.
//!
//! A schedule names a hook and never a command: whoever may ask the manager may not for that reason run what they like
//! on its machine. How a hook is run is the edge's affair ([`Hooks`]); here it is a name, a time limit, and how it ended.

use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_model::id::{DemandId, GpuId, ScheduleId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The name of a hook: 1 to 63 letters, digits, dots, dashes and underscores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct HookName(String);

impl HookName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HookName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match (1..=63).contains(&name.len()) && name.chars().all(plain) && !name.starts_with(['.', '-']) {
            true => Ok(Self(name)),
            false => Err(format!(
                "{name:?} can't be the name of a hook: 1 to 63 letters, digits, dots, dashes and underscores are allowed, and it begins with none of . and -"
            )),
        }
    }
}

impl std::str::FromStr for HookName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::try_from(name.to_owned())
    }
}

impl From<HookName> for String {
    fn from(name: HookName) -> Self {
        name.0
    }
}

impl fmt::Display for HookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a hook is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// The borrower is told that it will be asked to let go.
    Notice,
    /// It is asked whether it may be taken now.
    Checkpoint,
    /// A return is going to be late.
    Alert,
    /// A GPU was taken out of use: the scheduler is told.
    Quarantine,
    /// A GPU is tried out before it is used again.
    BurnIn,
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notice => "notice",
            Self::Checkpoint => "checkpoint",
            Self::Alert => "alert",
            Self::Quarantine => "quarantine",
            Self::BurnIn => "burn-in",
        })
    }
}

/// One run of a hook, with what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    pub hook: HookName,
    pub occasion: Occasion,
    /// What lent; nothing where a job of the queue is to be stopped.
    pub schedule: Option<ScheduleId>,
    /// The GPU that it is about, where it is about one alone.
    pub gpu: Option<GpuId>,
    /// From 1.
    pub attempt: u32,
    /// It is over after so long, one way or the other.
    pub limit: Duration,
    /// When the lend began: with the schedule, the occasion and the attempt this names the run for good.
    pub began: Timestamp,
    /// When what was lent goes back at the latest, if all goes well.
    pub ends: Timestamp,
    /// When it is to be back.
    pub due: Option<Timestamp>,
    pub borrowers: Vec<DemandId>,
    pub lenders: Vec<DemandId>,
    /// For an alert: what is wrong.
    pub why: String,
}

impl HookCall {
    /// The name of the schedule; empty where a job is to be stopped.
    pub fn schedule(&self) -> &str {
        self.schedule.as_ref().map_or("", ScheduleId::as_str)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookEnd {
    #[serde(flatten)]
    pub how: HowItEnded,
    /// The end of what it wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "ended", rename_all = "kebab-case")]
pub enum HowItEnded {
    Exited {
        code: i32,
    },
    /// By a signal.
    Killed {
        signal: i32,
    },
    /// It was ended at its time limit.
    TimedOut {
        after_s: u64,
    },
    /// It could not be begun.
    NotRun {
        because: String,
    },
    /// The manager that ran it has ended, and nobody knows how it went.
    CutOff,
}

impl HookEnd {
    pub fn new(how: HowItEnded, output: impl Into<String>) -> Self {
        Self {
            how,
            output: output.into(),
        }
    }

    pub fn is_success(&self) -> bool {
        self.how == HowItEnded::Exited { code: 0 }
    }
}

impl fmt::Display for HookEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            HowItEnded::Exited { code } => write!(f, "it ended with {code}")?,
            HowItEnded::Killed { signal } => write!(f, "it was killed by signal {signal}")?,
            HowItEnded::TimedOut { after_s } => {
                write!(f, "it did not end within {after_s} s and was stopped")?
            }
            HowItEnded::NotRun { because } => write!(f, "it could not be run: {because}")?,
            HowItEnded::CutOff => {
                f.write_str("the manager that ran it ended, and nobody knows how it went")?
            }
        }
        match self.output.trim_end().lines().next_back() {
            Some(last) => write!(f, " ({last})"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a name of these, if one is not known, and what to do.
pub(crate) fn unknown<'n>(
    hooks: &dyn Hooks,
    mut named: impl Iterator<Item = &'n HookName>,
) -> Option<(String, &'static str)> {
    let unknown = named.find(|name| !hooks.knows(name))?;
    let known = match hooks.names().join(", ") {
        none if none.is_empty() => "none is known".to_owned(),
        known => format!("known: {known}"),
    };
    Some((
        format!("names hook {unknown}, which this manager does not have ({known})"),
        "declare it in the file that the manager is started with: poolwright serve --hooks FILE",
    ))
}

/// Runs hooks.
#[async_trait]
pub trait Hooks: fmt::Debug + Send + Sync {
    /// Those that there are.
    fn names(&self) -> Vec<String>;

    fn knows(&self, name: &HookName) -> bool {
        self.names().iter().any(|known| known == name.as_str())
    }

    /// Runs one to its end, or for as long as its limit. Where the future is dropped, it is ended too.
    async fn run(&self, call: &HookCall) -> HookEnd;
}

/// There are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

#[async_trait]
impl Hooks for NoHooks {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, call: &HookCall) -> HookEnd {
        let because = format!("this manager has no hook {}", call.hook);
        HookEnd::new(HowItEnded::NotRun { because }, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_and_no_command() {
        for good in ["save", "save.all_2-x"] {
            assert!(good.parse::<HookName>().is_ok(), "{good}");
        }
        for bad in ["", "rm -rf /", "../save", "-x", "a/b", &"x".repeat(64)] {
            assert!(bad.parse::<HookName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn how_it_ended_is_told_with_the_end_of_what_it_wrote() {
        let end = HookEnd::new(HowItEnded::Exited { code: 3 }, "saving\nnot yet: step 41 of 50\n");
        assert_eq!(end.to_string(), "it ended with 3 (not yet: step 41 of 50)");
        assert!(!end.is_success());
    }
}
