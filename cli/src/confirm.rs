//! Asks before something is destroyed; off a terminal only `--yes` will do.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use std::io::{self, IsTerminal, Write};

/// For commands that release, detach or delete something.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct ConfirmArgs {
    /// Do it without asking; needed where there is no terminal
    #[arg(long, short = 'y')]
    pub yes: bool,
}

impl ConfirmArgs {
    /// Whether to go on with `what`, such as "release web".
    pub fn confirm(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(Failure::usage(format!("refusing to {what}: not a terminal"))
                .with_hint("pass --yes if that is what you want"));
        }
        let mut err = io::stderr();
        let _ = write!(err, "{what}? [y/N] ").and_then(|()| err.flush());
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        match (read, answer.trim().to_ascii_lowercase().as_str()) {
            (Ok(_), "y" | "yes") => Ok(()),
            _ => {
                Err(Failure::new(ExitCode::Generic, format!("not done: {what}"))
                    .with_hint("nothing was changed"))
            }
        }
    }
}
