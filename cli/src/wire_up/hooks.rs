//! Hooks as processes: commands of the operator's in a file beside the manager, each an argument vector. No shell ever
//! reads any of it; what a run is about comes to it in its environment.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use async_trait::async_trait;
use poolwright_agent::command::{self, Ended};
use poolwright_service::hooks::{HookCall, HookEnd, HookName, Hooks, HowItEnded};
use std::collections::BTreeMap;
use std::path::Path;

/// The largest file of hooks.
const LARGEST: u64 = 1 << 20;

/// The commands, by their names.
#[derive(Debug)]
pub struct Processes(BTreeMap<HookName, Vec<String>>);

/// Reads a file of hooks: TOML, `name = ["/program", "argument"]`.
pub fn read_hooks(file: &Path) -> Result<Processes, Failure> {
    let unread = |error| Failure::file(file, "read", &error);
    let size = std::fs::metadata(file).map_err(unread)?.len();
    let refused = |what: String| {
        Failure::new(ExitCode::Usage, format!("{}: {what}", file.display()))
            .with_hint("a line for each hook, such as save = [\"/usr/local/bin/save\", \"--all\"]")
    };
    if size > LARGEST {
        return Err(refused(format!(
            "it has {size} bytes: at most {LARGEST} are read"
        )));
    }
    let text = std::fs::read_to_string(file).map_err(unread)?;
    parse(&text).map_err(refused)
}

fn parse(text: &str) -> Result<Processes, String> {
    let hooks: BTreeMap<HookName, Vec<String>> =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    for (name, command) in &hooks {
        command::check(command).map_err(|why| format!("hook {name}: {why}"))?;
    }
    Ok(Processes(hooks))
}

#[async_trait]
impl Hooks for Processes {
    fn names(&self) -> Vec<String> {
        self.0.keys().map(ToString::to_string).collect()
    }

    async fn run(&self, call: &HookCall) -> HookEnd {
        let Some(command) = self.0.get(&call.hook) else {
            let because = format!("this manager has no hook {}", call.hook);
            return HookEnd::new(HowItEnded::NotRun { because }, "");
        };
        let (ended, output) = command::run(command, &told(call), call.limit).await;
        let how = match ended {
            Ended::Exited { code } => HowItEnded::Exited { code },
            Ended::Killed { signal } => HowItEnded::Killed { signal },
            Ended::NotRun { because } => HowItEnded::NotRun { because },
            Ended::TimedOut => HowItEnded::TimedOut {
                after_s: call.limit.as_secs(),
            },
        };
        HookEnd::new(how, output)
    }
}

/// What a run is about.
fn told(call: &HookCall) -> Vec<(&'static str, String)> {
    let names = |demands: &[_]| {
        let names: Vec<String> = demands.iter().map(ToString::to_string).collect();
        names.join(" ")
    };
    vec![
        ("POOLWRIGHT_SCHEDULE", call.schedule().to_owned()),
        (
            "POOLWRIGHT_GPU",
            call.gpu.as_ref().map(ToString::to_string).unwrap_or_default(),
        ),
        ("POOLWRIGHT_OCCASION", call.occasion.to_string()),
        ("POOLWRIGHT_ATTEMPT", call.attempt.to_string()),
        ("POOLWRIGHT_LEND_BEGAN", call.began.to_string()),
        ("POOLWRIGHT_ENDS", call.ends.to_string()),
        (
            "POOLWRIGHT_DUE",
            call.due.map(|due| due.to_string()).unwrap_or_default(),
        ),
        ("POOLWRIGHT_LIMIT_S", call.limit.as_secs().to_string()),
        ("POOLWRIGHT_BORROWERS", names(&call.borrowers)),
        ("POOLWRIGHT_LENDERS", names(&call.lenders)),
        ("POOLWRIGHT_WHY", call.why.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::hooks::Occasion;
    use std::time::Duration;

    fn call(hook: &str, limit: Duration) -> HookCall {
        HookCall {
            hook: hook.parse().unwrap(),
            occasion: Occasion::Checkpoint,
            schedule: Some("night".parse().unwrap()),
            gpu: None,
            attempt: 2,
            limit,
            began: jiff::Timestamp::UNIX_EPOCH,
            ends: jiff::Timestamp::UNIX_EPOCH,
            due: None,
            borrowers: vec!["train".parse().unwrap(), "batch".parse().unwrap()],
            lenders: Vec::new(),
            why: String::new(),
        }
    }

    async fn end_of(command: &str, limit: Duration) -> HookEnd {
        let hooks = parse(&format!("it = {command}")).unwrap();
        hooks.run(&call("it", limit)).await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn its_exit_status_and_the_end_of_its_words_are_kept() {
        let said = end_of(
            r#"["/bin/sh", "-c", "echo $POOLWRIGHT_BORROWERS; echo attempt $POOLWRIGHT_ATTEMPT >&2; exit 3"]"#,
            LONG,
        );
        let said = said.await;
        assert_eq!(said.how, HowItEnded::Exited { code: 3 });
        assert!(
            said.output.contains("train batch") && said.output.contains("attempt 2"),
            "{said:?}"
        );
        let wordy = end_of(r#"["/bin/sh", "-c", "yes | head -c 100000; echo the end"]"#, LONG).await;
        assert!(
            wordy.is_success() && wordy.output.len() == command::KEPT,
            "{}",
            wordy.output.len()
        );
        assert!(wordy.output.ends_with("the end\n"));
    }

    #[tokio::test]
    async fn one_that_hangs_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! >{}; wait", file.display());
        let command = format!(r#"["/bin/sh", "-c", "{script}"]"#);
        let told = || std::fs::read_to_string(&file).unwrap_or_default();
        let started = async {
            while !told().ends_with('\n') {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The limit is not waited for: a paused clock goes on to it when there is nothing else to do.
            tokio::time::pause();
            std::future::pending::<HookEnd>().await
        };
        let hung = tokio::select! {
            hung = end_of(&command, LONG) => hung,
            never = started => never,
        };
        tokio::time::resume();
        assert_eq!(hung.how, HowItEnded::TimedOut { after_s: 60 });
        let pid: u32 = told().trim().parse().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Gone, or waiting for whoever reaps orphans here.
        for _ in 0..6000 {
            let state = state();
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it lives: {}", state());
    }

    #[tokio::test]
    async fn no_shell_reads_it_and_what_can_not_be_run_says_why() {
        let plain = end_of(r#"["/bin/echo", "$HOME; exit 1", "a b"]"#, LONG).await;
        assert!(
            plain.is_success() && plain.output == "$HOME; exit 1 a b\n",
            "{plain:?}"
        );
        let missing = end_of(r#"["/no/such/program"]"#, LONG).await;
        assert!(missing.to_string().contains("/no/such/program"), "{missing}");
        let killed = end_of(r#"["/bin/sh", "-c", "kill -9 $$"]"#, LONG).await;
        assert_eq!(killed.how, HowItEnded::Killed { signal: 9 });
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused() {
        for (text, word) in [
            ("save = \"rm -rf /\"", "save"),
            ("save = []", "no command"),
            ("save = [\"save.sh\"]", "no absolute path"),
            ("\"a b\" = [\"/bin/true\"]", "name of a hook"),
            ("save = [\"/bin/true\", \"\\u0000\"]", "NUL"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
