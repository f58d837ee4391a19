//! What a borrower is owed before what was lent to it goes back: a notice, a checkpoint, a grace. The guarantee that the
//! lender has in turn is how long all of that and the return may take.
//!
//! The rungs come one after another, and none is left out: where the manager was away, they begin later, and the return
//! is late rather than the borrower robbed. What a rung runs is a hook, known by its name ([`crate::hooks`]).

use crate::error::ServiceError;
use crate::hooks::{self, HookName, Hooks};
use crate::returns::Returns;
use crate::schedule::ScheduleSpec;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest that one rung may last: a day.
const LONGEST_S: u32 = 24 * 3600;
/// A checkpoint may take so long where nothing else is said.
const CHECKPOINT_S: u32 = 60;
/// A hook that only tells something may take so long.
pub const TELLING: Duration = Duration::from_secs(30);

/// The rungs of a return, as people write them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// Seconds from the notice to the checkpoint, or to the return where there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub notice_s: u32,
    /// Run with the notice; how it ends does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<HookName>,
    /// Run until it ends with 0: then what was lent may be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<HookName>,
    /// The longest that one run of the checkpoint may take, in seconds; 60 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_s: Option<u32>,
    /// Seconds from the first checkpoint that did not succeed until `may_stop` decides.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace_s: u32,
    /// After the grace it is taken without a checkpoint; otherwise the checkpoint is run until it succeeds.
    #[serde(default, skip_serializing_if = "is_no")]
    pub may_stop: bool,
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_no(may: &bool) -> bool {
    !may
}

impl Ladder {
    pub fn notice(&self) -> SignedDuration {
        SignedDuration::from_secs(self.notice_s.into())
    }

    pub fn grace(&self) -> SignedDuration {
        SignedDuration::from_secs(self.grace_s.into())
    }

    /// The longest that one run of its checkpoint may take.
    pub fn limit(&self) -> Duration {
        match &self.checkpoint {
            Some(_) => Duration::from_secs(self.checkpoint_s.unwrap_or(CHECKPOINT_S).into()),
            None => Duration::ZERO,
        }
    }

    /// From its first rung to the last, where the checkpoint takes all of its time and the grace as well.
    pub fn length(&self) -> SignedDuration {
        let limit = i64::try_from(self.limit().as_secs()).unwrap_or(i64::MAX);
        SignedDuration::from_secs(i64::from(self.notice_s) + limit + i64::from(self.grace_s))
    }

    /// Settings that cannot both hold, or that say nothing.
    fn contradiction(&self) -> Option<(String, &'static str)> {
        let of_a_checkpoint = [
            ("checkpoint_s", self.checkpoint_s.is_some()),
            ("grace_s", self.grace_s > 0),
            ("may_stop", self.may_stop),
        ];
        let named = [
            ("notice_s", Some(self.notice_s)),
            ("checkpoint_s", self.checkpoint_s),
            ("grace_s", Some(self.grace_s)),
        ];
        let given = of_a_checkpoint.iter().find(|(_, given)| *given);
        if let (Some((name, _)), None) = (given, &self.checkpoint) {
            return Some((
                format!("has {name}, and no checkpoint"),
                "name a checkpoint, or leave it out: it says what becomes of one that does not succeed",
            ));
        }
        if self.notify.is_some() && self.notice_s == 0 {
            return Some((
                "has notify, and no notice_s".to_owned(),
                "say how long before: notice_s = 600",
            ));
        }
        if self.notice_s == 0 && self.checkpoint.is_none() {
            return Some((
                "has neither a notice nor a checkpoint".to_owned(),
                "give notice_s, or a checkpoint, or leave the ladder out",
            ));
        }
        if self.checkpoint_s == Some(0) {
            return Some((
                "gives its checkpoint no time (checkpoint_s is 0)".to_owned(),
                "allow 1 s to a day",
            ));
        }
        let long = named
            .iter()
            .find(|(_, seconds)| seconds.unwrap_or_default() > LONGEST_S);
        long.map(|(name, seconds)| {
            let message = format!(
                "has {name} = {}: a day ({LONGEST_S}) is the most",
                seconds.unwrap_or_default()
            );
            (message, "make it shorter")
        })
    }
}

/// Whether what a schedule says of its returns makes sense: hooks that are known here, something that is lent and
/// somebody who borrows it, and a guarantee that can be held at the times that were measured.
pub(crate) fn judge(spec: &ScheduleSpec, hooks: &dyn Hooks, returns: &Returns) -> Result<(), ServiceError> {
    let id = &spec.id;
    let refused = |what: String, hint: &str| {
        Err(ServiceError::bad_request(format!("schedule {id} {what}")).with_hint(hint))
    };
    let promises = [
        ("a ladder", spec.ladder.is_some()),
        ("a reclaim time", spec.reclaim_s.is_some()),
        ("an alert", spec.alert.is_some()),
    ];
    let promised = promises.iter().find(|(_, given)| *given);
    if let (Some((what, _)), true) = (promised, spec.suspends.is_empty()) {
        return refused(
            format!("has {what}, and suspends nothing, so nothing is lent"),
            "name what it suspends, or leave that out",
        );
    }
    if spec.alert.is_some() && !spec.back_by_close && spec.reclaim_s.is_none() {
        return refused(
            "has an alert, and nothing says when a return is late".to_owned(),
            "give back_by_close or reclaim_s",
        );
    }
    if let Some(ladder) = &spec.ladder {
        if spec.demands.is_empty() {
            return refused(
                "has a ladder, and no demand that borrows".to_owned(),
                "give it a demand, or leave the ladder out",
            );
        }
        if let Some((what, hint)) = ladder.contradiction() {
            return refused(format!("has a ladder that {what}"), hint);
        }
    }
    let ladder = spec.ladder.iter();
    let named = ladder.flat_map(|ladder| ladder.notify.iter().chain(&ladder.checkpoint));
    if let Some((what, hint)) = hooks::unknown(hooks, named.chain(&spec.alert)) {
        return refused(what, hint);
    }
    let takes = spec.longest_return(returns);
    match spec.reclaim_s {
        Some(reclaim_s) if takes > SignedDuration::from_secs(reclaim_s.into()) => refused(
            format!(
                "guarantees a return within {reclaim_s} s, which can't be held: its ladder takes up to {} s, and a return {returns}",
                spec.ladder_length().as_secs()
            ),
            "guarantee a longer time, or shorten the ladder",
        ),
        _ => Ok(()),
    }
}

impl ScheduleSpec {
    /// How long the rungs before a return take at most.
    pub fn ladder_length(&self) -> SignedDuration {
        self.ladder.as_ref().map_or(SignedDuration::ZERO, Ladder::length)
    }

    /// From the first rung until all is back, at the times that were measured.
    fn longest_return(&self, returns: &Returns) -> SignedDuration {
        self.ladder_length().saturating_add(returns.early())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::NoHooks;
    use async_trait::async_trait;
    use serde_json::{Value, json};

    #[derive(Debug)]
    struct Save;

    #[async_trait]
    impl Hooks for Save {
        fn names(&self) -> Vec<String> {
            vec!["save".into()]
        }

        async fn run(&self, _: &crate::hooks::HookCall) -> crate::hooks::HookEnd {
            unreachable!("nothing is run here")
        }
    }

    fn judged(change: impl Fn(&mut Value), hooks: &dyn Hooks) -> Result<(), String> {
        let mut spec = json!({
            "id": "night", "suspends": ["chat"], "demands": [{"id": "train", "gpus": 1}],
            "window": {"opens": "0 20 * * *", "closes": "30 7 * * *"},
            "ladder": {"notice_s": 600, "checkpoint": "save", "checkpoint_s": 120, "grace_s": 60, "may_stop": true},
            "reclaim_s": 1200, "back_by_close": true, "alert": "save",
        });
        change(&mut spec);
        let spec: ScheduleSpec = serde_json::from_value(spec).unwrap();
        judge(&spec, hooks, &Returns::of(&[])).map_err(|refused| {
            assert!(refused.hint.is_some(), "{refused}");
            refused.message
        })
    }

    #[test]
    fn a_ladder_that_makes_no_sense_is_refused_with_what_is_wrong() {
        assert_eq!(judged(|_| {}, &Save), Ok(()));
        let ladder = |ladder: Value| judged(|spec| spec["ladder"] = ladder.clone(), &Save).unwrap_err();
        for (wrong, word) in [
            (json!({}), "neither a notice nor a checkpoint"),
            (json!({"notice_s": 5, "grace_s": 5}), "grace_s, and no checkpoint"),
            (
                json!({"notice_s": 5, "may_stop": true}),
                "may_stop, and no checkpoint",
            ),
            (json!({"checkpoint": "save", "notify": "save"}), "no notice_s"),
            (json!({"checkpoint": "save", "checkpoint_s": 0}), "no time"),
            (json!({"notice_s": 86_401}), "a day"),
            (
                json!({"checkpoint": "sve"}),
                "hook sve, which this manager does not have (known: save)",
            ),
            (
                json!({"notice_s": 1200}),
                "can't be held: its ladder takes up to 1200 s",
            ),
        ] {
            let refused = ladder(wrong);
            assert!(refused.contains(word), "{refused}");
        }
        let refused = |change: fn(&mut Value)| judged(change, &Save).unwrap_err();
        assert!(refused(|spec| spec["suspends"] = json!([])).contains("nothing is lent"));
        assert!(refused(|spec| spec["demands"] = json!([])).contains("no demand that borrows"));
        let no_time =
            |spec: &mut Value| (spec["back_by_close"], spec["reclaim_s"]) = (json!(false), Value::Null);
        assert!(refused(no_time).contains("nothing says when"));
        assert!(judged(|_| {}, &NoHooks).unwrap_err().contains("none is known"));
    }

    #[test]
    fn no_time_is_negative_and_nothing_is_misspelt() {
        for wrong in [
            json!({"notice_s": -5}),
            json!({"notice": 5}),
            json!({"checkpoint": "no name"}),
        ] {
            assert!(
                serde_json::from_value::<Ladder>(wrong.clone()).is_err(),
                "{wrong}"
            );
        }
    }
}
