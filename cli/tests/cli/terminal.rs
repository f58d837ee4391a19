//! Running the binary on a terminal: script(1) makes one.

use crate::support::{Manager, PATIENCE, Ran};
use std::process::Stdio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

impl Manager {
    /// Begins a command against it on a terminal.
    pub fn on_terminal(&self, line: &str) -> Terminal {
        let program = env!("CARGO_BIN_EXE_poolwright");
        let mut command = Command::new("script");
        command.args(["-qec", &format!("{program} {line}"), "/dev/null"]);
        for (name, value) in self.command([]).as_std().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Terminal {
            child,
            shown: String::new(),
        }
    }
}

/// A command on a terminal.
pub struct Terminal {
    child: Child,
    /// Its output so far.
    pub shown: String,
}

impl Terminal {
    /// Waits until it shows this.
    pub async fn until(&mut self, text: &str) {
        let shown = async {
            while !self.shown.contains(text) {
                let mut bytes = [0; 4096];
                let read = self
                    .child
                    .stdout
                    .as_mut()
                    .unwrap()
                    .read(&mut bytes)
                    .await
                    .unwrap();
                assert_ne!(read, 0, "no {text:?}: {}", self.shown);
                self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        };
        tokio::time::timeout(PATIENCE, shown)
            .await
            .unwrap_or_else(|_| panic!("no {text:?} in time"));
    }

    /// Types a line.
    pub async fn type_in(&mut self, line: &str) {
        let keys = self.child.stdin.as_mut().unwrap();
        keys.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Types a line, and waits until the command ends.
    pub async fn answer(mut self, line: &str) -> Ran {
        self.type_in(line).await;
        let mut rest = String::new();
        let mut screen = self.child.stdout.take().unwrap();
        let ended = async {
            screen.read_to_string(&mut rest).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("it ends in time");
        Ran {
            code: status.code().expect("it ends by itself"),
            out: self.shown + &rest,
            err: String::new(),
        }
    }
}
