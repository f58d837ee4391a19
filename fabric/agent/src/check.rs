//! One thing that was looked at, and what it says.

use serde::Serialize;

/// What a look says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The check does not apply to this host.
    NotApplicable,
    Good,
    /// It could not be read, or this host doesn't show it. Never taken for good.
    CannotTell,
    Bad,
}

/// A check by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: &'static str,
    pub verdict: Verdict,
    /// What was found and, where it is not good, what was expected.
    pub says: String,
}

impl Check {
    pub(crate) fn good(check: &'static str, says: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Good,
            says: says.into(),
        }
    }

    pub(crate) fn not_applicable(check: &'static str, says: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::NotApplicable,
            says: says.into(),
        }
    }

    pub(crate) fn bad(check: &'static str, says: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Bad,
            says: says.into(),
        }
    }

    pub(crate) fn cannot_tell(check: &'static str, says: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::CannotTell,
            says: says.into(),
        }
    }

    /// Good or bad, each in its words.
    pub(crate) fn that(
        check: &'static str,
        holds: bool,
        good: impl Into<String>,
        bad: impl Into<String>,
    ) -> Self {
        if holds {
            Self::good(check, good)
        } else {
            Self::bad(check, bad)
        }
    }
}

/// The worst of them; good where there are none.
pub fn verdict(checks: &[Check]) -> Verdict {
    checks
        .iter()
        .map(|check| check.verdict)
        .max()
        .unwrap_or(Verdict::Good)
        .max(Verdict::Good)
}
