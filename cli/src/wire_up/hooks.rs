//! Hooks as processes: commands of the operator's in a file beside the manager, each an argument vector. No shell ever
//! reads any of it; what a run is about comes to it in its environment.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use async_trait::async_trait;
use poolwright_service::hooks::{HookCall, HookEnd, HookName, Hooks, HowItEnded};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// Of what a hook writes so much of the end is kept.
const KEPT: usize = 2048;
/// What a hook left behind may hold its output open: it is not read for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);
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
        let program = command.first().map(Path::new);
        match program {
            Some(program) if program.is_absolute() => {}
            Some(program) => {
                return Err(format!(
                    "hook {name}: {} is no absolute path, so what it runs would depend on where the manager was started",
                    program.display()
                ));
            }
            None => return Err(format!("hook {name} has no command")),
        }
        if command.iter().any(|argument| argument.contains('\0')) {
            return Err(format!(
                "hook {name}: an argument holds a NUL, which no command can be given"
            ));
        }
    }
    Ok(Processes(hooks))
}

#[async_trait]
impl Hooks for Processes {
    fn names(&self) -> Vec<String> {
        self.0.keys().map(ToString::to_string).collect()
    }

    async fn run(&self, call: &HookCall) -> HookEnd {
        let not_run = |because: String| HookEnd::new(HowItEnded::NotRun { because }, "");
        let Some((program, arguments)) = self.0.get(&call.hook).and_then(|command| command.split_first())
        else {
            return not_run(format!("this manager has no hook {}", call.hook));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(told(call))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // With all that it starts it can be ended as one.
            .process_group(0)
            .kill_on_drop(true);
        match command.spawn() {
            Ok(child) => to_the_end(child, call.limit).await,
            Err(error) => not_run(format!("{program}: {error}")),
        }
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

async fn to_the_end(mut child: Child, limit: Duration) -> HookEnd {
    let mut group = Group::of(&child);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut tail = Tail::default();
    let how = {
        let ended = async {
            let read = read_both(out, err, &mut tail);
            tokio::pin!(read);
            let mut all_read = false;
            let ended = {
                let wait = child.wait();
                tokio::pin!(wait);
                loop {
                    tokio::select! {
                        biased;
                        ended = &mut wait => break ended,
                        () = &mut read, if !all_read => all_read = true,
                    }
                }
            };
            if !all_read {
                // What is left of its words, but not for ever.
                let _ = tokio::time::timeout(LAST_WORDS, read).await;
            }
            ended
        };
        match tokio::time::timeout(limit, ended).await {
            Ok(Ok(status)) => {
                // What it left running on purpose goes on.
                group.0 = None;
                how(status)
            }
            Ok(Err(error)) => HowItEnded::NotRun {
                because: error.to_string(),
            },
            Err(_) => HowItEnded::TimedOut {
                after_s: limit.as_secs(),
            },
        }
    };
    drop(group);
    // Nothing of it stays behind as a zombie.
    let _ = child.wait().await;
    HookEnd::new(how, tail.text())
}

fn how(status: ExitStatus) -> HowItEnded {
    match (status.code(), status.signal()) {
        (Some(code), _) => HowItEnded::Exited { code },
        (None, signal) => HowItEnded::Killed {
            signal: signal.unwrap_or_default(),
        },
    }
}

/// A hook and all that it started: ended with this, unless it ended by itself.
struct Group(Option<rustix::process::Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(rustix::process::Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Nobody is left of it, as a rule.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The end of what was written, of both streams as it came.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let old = self.0.len().saturating_sub(KEPT);
        self.0.drain(..old);
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        text.trim_start_matches('\u{fffd}').to_owned()
    }
}

async fn read_both(
    out: Option<impl AsyncRead + Unpin>,
    err: Option<impl AsyncRead + Unpin>,
    tail: &mut Tail,
) {
    let (mut out, mut err) = (out, err);
    let (mut of_out, mut of_err) = ([0; 1024], [0; 1024]);
    while out.is_some() || err.is_some() {
        tokio::select! {
            read = some(&mut out, &mut of_out) => match read {
                0 => out = None,
                read => tail.add(&of_out[..read]),
            },
            read = some(&mut err, &mut of_err) => match read {
                0 => err = None,
                read => tail.add(&of_err[..read]),
            },
        }
    }
}

/// 0 at the end, or where no more can be read.
async fn some(stream: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match stream {
        Some(stream) => stream.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::hooks::Occasion;

    fn call(hook: &str, limit: Duration) -> HookCall {
        HookCall {
            hook: hook.parse().unwrap(),
            occasion: Occasion::Checkpoint,
            schedule: Some("night".parse().unwrap()),
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
            wordy.is_success() && wordy.output.len() == KEPT,
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
        let hung = end_of(
            &format!(r#"["/bin/sh", "-c", "{script}"]"#),
            Duration::from_secs(1),
        )
        .await;
        assert_eq!(hung.how, HowItEnded::TimedOut { after_s: 1 });
        let pid: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Gone, or waiting for whoever reaps orphans here.
        for _ in 0..1000 {
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
