//! Commands of the host's administrator that the agent runs once a GPU came and before one goes, such as one that takes the
//! host from its scheduler: `hooks.toml` in the agent's folder, `name = ["/program", "argument"]`.
//!
//! Invariants: no shell reads any of it; who asks can't name a command, only the file can; each ends, with all that it has
//! started, when its time is over.

use crate::command::{self, Ended};
use crate::folder::Folder;
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs once a GPU came: whether it is well.
pub(crate) const HEALTH_CHECK: &str = "health-check";
/// Runs once a GPU that came is well and set: to tell the host's software of it.
pub(crate) const AFTER_ATTACH: &str = "after-attach";
/// Runs before a GPU is taken from its driver: to stop new work.
pub(crate) const BEFORE_DETACH: &str = "before-detach";
/// Runs when that is taken back.
pub(crate) const DETACH_UNDONE: &str = "detach-undone";
const NAMES: [&str; 4] = [HEALTH_CHECK, AFTER_ATTACH, BEFORE_DETACH, DETACH_UNDONE];
/// In the agent's folder.
const FILE: &str = "hooks.toml";
/// How long each may run: three of them, where the last undoes what the second did, within one answer.
const LIMIT: Duration = Duration::from_secs(15);
/// So much of what it complains about is told.
const TOLD: usize = 500;

/// The commands, by their names.
#[derive(Debug, Default)]
pub(crate) struct Hooks(BTreeMap<String, Vec<String>>);

impl Hooks {
    /// None where there is no such file. A file that makes no sense is told: half of it is not run.
    pub fn read(folder: &Folder) -> Result<Self, String> {
        let place = folder.path().join(FILE);
        let refused = |what: String| format!("{}: {what}", place.display());
        match folder.read_if_any(FILE) {
            Ok(Some(text)) => Self::parse(&text).map_err(refused),
            Ok(None) => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let hooks: BTreeMap<String, Vec<String>> =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        for (name, command) in &hooks {
            if !NAMES.contains(&name.as_str()) {
                return Err(format!("there is no hook {name:?}, but {}", NAMES.join(", ")));
            }
            command::check(command).map_err(|why| format!("hook {name}: {why}"))?;
        }
        Ok(Self(hooks))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Runs one to its end, if there is one of this name. What it is about is in its environment.
    pub async fn run(&self, name: &str, about: &[(&str, String)]) -> Result<(), String> {
        let Some(command) = self.0.get(name) else {
            return Ok(());
        };
        let (ended, output) = command::run(command, about, LIMIT).await;
        let why = match ended {
            Ended::Exited { code: 0 } => return Ok(()),
            Ended::Exited { code } => format!("ended with {code}"),
            Ended::Killed { signal } => format!("was killed by signal {signal}"),
            Ended::TimedOut => format!("was ended after {} s", LIMIT.as_secs()),
            Ended::NotRun { because } => format!("can't be run: {because}"),
        };
        let program = command.first().map_or("", String::as_str);
        Err(format!("hook {name} ({program}) {why}{}", words(&output)))
    }
}

/// The end of what it wrote, on one line.
fn words(output: &str) -> String {
    let line: String = output
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let old = line.char_indices().rev().nth(TOLD).map_or(0, |(at, _)| at);
    match line.is_empty() {
        true => line,
        false => format!(": {}", &line[old..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hook_gets_what_it_is_about_and_its_complaint_is_told() {
        let hooks =
            Hooks::parse(r#"before-detach = ["/bin/sh", "-c", "echo no $WHAT >&2; exit 3"]"#).unwrap();
        let failed = hooks.run(BEFORE_DETACH, &[("WHAT", "gpu-1".to_owned())]).await;
        let failed = failed.unwrap_err();
        assert!(
            failed.contains("ended with 3") && failed.contains("no gpu-1"),
            "{failed}"
        );
        assert_eq!(hooks.run(DETACH_UNDONE, &[]).await, Ok(()), "there is none");
    }

    #[tokio::test]
    async fn what_a_hook_left_running_keeps_nobody_waiting() {
        let hook = ["/bin/sh", "-c", "sleep 90 & exit 0"].map(str::to_owned);
        let about: [(&str, String); 0] = [];
        let (ended, _) = command::run(&hook, &about, Duration::from_secs(60)).await;
        assert_eq!(ended, Ended::Exited { code: 0 }, "it holds the output open");
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_as_a_whole() {
        for (text, word) in [
            ("before-detach = \"rm -rf /\"", "before-detach"),
            ("before-detach = []", "no command"),
            ("before-detach = [\"cordon\"]", "no absolute path"),
            ("before = [\"/bin/true\"]", "no hook \"before\""),
            ("before-detach = [\"/bin/true\", \"\\u0000\"]", "NUL"),
        ] {
            let refused = Hooks::parse(text).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
