//! A command of an operator's, run to its end: an argument vector, never read by a shell, bounded in time, and ended with
//! all that it started where that time is over or nobody waits any more.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// Of what a command writes so much of the end is kept.
pub const KEPT: usize = 2048;
/// What a command left behind may hold its output open: it is not read for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Exited {
        code: i32,
    },
    /// By a signal.
    Killed {
        signal: i32,
    },
    /// It was ended at its time limit.
    TimedOut,
    /// It could not be begun, or waited for.
    NotRun {
        because: String,
    },
}

/// What is wrong with a command vector, if anything.
pub fn check(command: &[String]) -> Result<(), String> {
    match command.first().map(Path::new) {
        Some(program) if program.is_absolute() => {}
        Some(program) => {
            return Err(format!(
                "{} is no absolute path, so what it runs would depend on where it is started",
                program.display()
            ));
        }
        None => return Err("it has no command".to_owned()),
    }
    match command.iter().any(|argument| argument.contains('\0')) {
        true => Err("an argument holds a NUL, which no command can be given".to_owned()),
        false => Ok(()),
    }
}

/// Runs a command with this in its environment, and gives the end of what it wrote.
pub async fn run<K: AsRef<str>>(
    command: &[String],
    about: &[(K, String)],
    limit: Duration,
) -> (Ended, String) {
    let not_run = |because: String| (Ended::NotRun { because }, String::new());
    let Some((program, arguments)) = command.split_first() else {
        return not_run("it has no command".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .envs(about.iter().map(|(key, value)| (key.as_ref(), value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // With all that it starts it can be ended as one.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    match spawned {
        Ok(child) => to_the_end(child, limit).await,
        Err(error) => not_run(format!("{program}: {error}")),
    }
}

async fn to_the_end(mut child: Child, limit: Duration) -> (Ended, String) {
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
            Ok(Err(error)) => Ended::NotRun {
                because: error.to_string(),
            },
            Err(_) => Ended::TimedOut,
        }
    };
    drop(group);
    // Nothing of it stays behind as a zombie.
    let _ = child.wait().await;
    (how, tail.text())
}

fn how(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited { code },
        (None, signal) => Ended::Killed {
            signal: signal.unwrap_or_default(),
        },
    }
}

/// A command and all that it started: ended with this, unless it ended by itself.
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
