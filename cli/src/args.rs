//! The command line as a whole: what holds for every command, and the list of commands.

use crate::commands;
use crate::output::Format;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use poolwright_terminal::EveryCommand;
use std::ffi::OsString;

/// Composes servers out of pooled GPUs: finds the GPUs, sizes models for them, plans who gets which, and moves
/// them between hosts without ever losing or doubling one.
#[derive(Debug, Parser)]
#[command(name = "poolwright", bin_name = "poolwright", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub every: EveryCommand,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  poolwright demo                               watch the whole job on an emulated rack
  poolwright discover --endpoint https://bmc-17 --username admin --password-file pw
  poolwright size 70B --task infer              which GPUs a model needs
  poolwright serve --data-dir pool --rack demo  run a manager on an emulated rack
  poolwright get gpus                           ask it; `poolwright gpus` is the same

Environment, for the commands that ask a manager:
  POOLWRIGHT_SERVER         its address, as --server
  POOLWRIGHT_CA             its certificate authority, as --ca
  POOLWRIGHT_USERNAME       account, as --username
  POOLWRIGHT_PASSWORD_FILE  file with the password, as --password-file
NO_COLOR leaves colours out; RUST_LOG says which messages of the program are shown.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 authentication (also a certificate that is not trusted),
5 conflict, 6 stale, 7 time-out, 8 partial, 9 indeterminate, 10 unavailable, 130 interrupted by Ctrl-C";

/// Nouns that stand for `get NOUN` when they stand alone.
pub const NOUNS: [&str; 11] = [
    "gpus",
    "telemetry",
    "hosts",
    "fabrics",
    "switches",
    "faults",
    "compositions",
    "demands",
    "schedules",
    "endpoints",
    "pauses",
];

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the whole job on an emulated rack: discover, size, plan, attach, recompose, release
    Demo(commands::demo::DemoArgs),
    /// Serve an emulated rack, or a recorded machine, as Redfish services
    Emulate(commands::emulate::EmulateArgs),
    /// Look at Redfish services once, and print what is there
    Discover(commands::discover::DiscoverArgs),
    /// Say how much memory a model takes, and which GPUs hold it
    Size(commands::size::SizeArgs),
    /// Replay recorded jobs against policies, on static servers and on a pool
    Simulate(commands::simulate::SimulateArgs),
    /// What more GPUs, hosts, slots or links would bring
    Capacity(commands::capacity::CapacityArgs),
    /// Say how many GPUs will be wanted, and how often such forecasts were right
    Forecast(commands::forecast::ForecastArgs),
    /// Run the manager
    Serve(commands::serve::ServeArgs),
    /// List what the manager knows
    Get(commands::get::GetArgs),
    /// Show everything about one thing
    Describe(commands::describe::DescribeArgs),
    /// Get GPUs for a model, or so many GPUs, now
    Compose(commands::compose::ComposeArgs),
    /// Let go of a demand or a composition
    Release(commands::release::ReleaseArgs),
    /// Attach GPUs by name to a host
    Attach(commands::attach::AttachArgs),
    /// Detach GPUs by name
    Detach(commands::attach::DetachArgs),
    /// Move GPUs that were attached by name to another host
    Move(commands::attach::MoveArgs),
    /// Say what is wanted, to be served by the next plan
    Demand(commands::demand::DemandArgs),
    /// Show the jobs that wait for their GPUs, and why
    Queue(commands::queue::QueueArgs),
    /// GPUs that failed: out of use, burnt in, replaced
    Gpu(commands::gpu::GpuArgs),
    /// What tenants are promised in the queue
    Tenant(commands::tenant::TenantArgs),
    /// Show what would be changed so that everything wanted is served, and why
    Plan(commands::plan::PlanArgs),
    /// Do exactly what a saved plan says, if what it rests on still stands
    Apply(commands::plan::ApplyArgs),
    /// Recompose by the calendar
    Schedule(commands::schedule::ScheduleArgs),
    /// Operations: list, show, wait, cancel, resolve
    Ops(commands::ops::OpsArgs),
    /// Stop what changes hardware: everything, what runs by itself, or one endpoint
    Pause(commands::pause::PauseArgs),
    /// Let it go on
    Resume(commands::pause::ResumeArgs),
    /// How much may happen by itself
    Limits(commands::limits::LimitsArgs),
    /// How many GPUs may be attached across the uplinks of switches
    Uplink(commands::uplink::UplinkArgs),
    /// Management services: add, adopt, list, test, remove, record, qualify
    Endpoint(commands::endpoint::EndpointArgs),
    /// Show where the fabric is not as recorded: wanted against found
    Diff(commands::diff::DiffArgs),
    /// Say why a demand is served, or is not
    Why(commands::why::WhyArgs),
    /// Copy everything that a manager keeps, while it runs
    Backup(commands::backup::BackupArgs),
    /// Make a data directory of such a copy
    Restore(commands::backup::RestoreArgs),
    /// Accounts: who may ask for what, and in which scope
    Account(commands::account::AccountArgs),
    /// Show who asked for what, and check that this record is whole
    Audit(commands::audit::AuditArgs),
    /// Hosts, closed for a time and over their life, and the agents on them
    Host(commands::host::HostArgs),
    /// The host's side: what this host has
    Agent(poolwright_agent::commands::AgentArgs),
    /// Check that everything is well
    Doctor(commands::doctor::DoctorArgs),
}

/// Reads the command line. What is wrong with it is told with a usage of what was typed: clap counts what the
/// environment sets among that, as if it had to be given.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let typed = with_get(arguments);
    Arguments::try_parse_from(&typed).map_err(|error| {
        if !error.use_stderr() {
            return error;
        }
        let alone = without_environment(Arguments::command()).try_get_matches_from(&typed);
        let mut error = match alone {
            Err(plain) if plain.kind() == error.kind() => plain,
            _ => error,
        };
        let unknown = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
        if let Some((_, ours)) = ELSEWHERE
            .iter()
            .find(|(theirs, _)| Some(*theirs) == unknown.as_deref())
        {
            let ours = ContextValue::Strings(vec![(*ours).to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, ours);
        }
        error
    })
}

/// Names of other tools, with the name here.
const ELSEWHERE: [(&str, &str); 4] = [
    ("cordon", "host close"),
    ("drain", "host close"),
    ("uncordon", "host open"),
    ("undrain", "host open"),
];

fn without_environment(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.env(None::<&'static str>));
    command.mut_subcommands(without_environment)
}

impl Arguments {
    /// How the result is written. A plan over time that is sent somewhere is kept there for a program to read: its
    /// checker, or the next plan.
    pub fn format(&self, on_terminal: bool) -> Format {
        let usual = match self.command.draws() && !on_terminal {
            true => Format::Json,
            false => Format::Table,
        };
        self.every.output.unwrap_or(usual)
    }
}

impl Command {
    /// Whether its result can be drawn.
    pub fn draws(&self) -> bool {
        matches!(self, Self::Plan(plan) if plan.is_over_time())
    }
}

/// Puts `get` before a noun that stands where the command does.
pub fn with_get(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut place = 1;
    while let Some(argument) = arguments.get(place).and_then(|argument| argument.to_str()) {
        match argument {
            "-o" | "--output" => place += 2,
            option if option.starts_with('-') => place += 1,
            noun if NOUNS.contains(&noun) => {
                arguments.insert(place, "get".into());
                break;
            }
            _ => break,
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_other_tools_call_otherwise_is_found() {
        for (theirs, ours) in ELSEWHERE {
            let error = parse(["poolwright", theirs].map(OsString::from))
                .unwrap_err()
                .to_string();
            assert!(error.contains(&format!("'{ours}'")), "{error}");
            assert!(!error.contains("'demand'"), "{error}");
            let line = format!("poolwright {ours} host-1 --reason x");
            let known = Arguments::try_parse_from(line.split(' ').take(4));
            let known = known.or_else(|_| Arguments::try_parse_from(line.split(' ')));
            assert!(known.is_ok(), "{ours}");
        }
    }

    #[test]
    fn a_noun_alone_is_asked_for() {
        let line = |text: &str| with_get(text.split(' ').map(OsString::from)).join(OsStr::new(" "));
        assert_eq!(line("poolwright gpus"), "poolwright get gpus");
        assert_eq!(
            line("poolwright -o json -v hosts --server x"),
            "poolwright -o json -v get hosts --server x"
        );
        assert_eq!(line("poolwright describe gpus"), "poolwright describe gpus");
        assert_eq!(line("poolwright ops"), "poolwright ops");
        assert_eq!(line("poolwright"), "poolwright");
    }

    #[test]
    fn a_plan_over_time_is_a_table_on_a_terminal_and_json_elsewhere() {
        let format = |line: &str, on_terminal| {
            let arguments = Arguments::try_parse_from(line.split(' ')).expect("a command");
            arguments.format(on_terminal)
        };
        let line = "poolwright plan --instance week.json";
        assert_eq!(format(line, true), Format::Table);
        assert_eq!(format(line, false), Format::Json);
        for on_terminal in [true, false] {
            assert_eq!(format(&format!("{line} -o table"), on_terminal), Format::Table);
            assert_eq!(format(&format!("{line} -o csv"), on_terminal), Format::Csv);
            assert_eq!(format("poolwright plan", on_terminal), Format::Table);
        }
    }

    #[test]
    fn every_command_shows_examples_that_are_right() {
        fn judge(command: &clap::Command) {
            for inner in command.get_subcommands() {
                judge(inner);
            }
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let examples = examples(&help);
            assert!(
                command.has_subcommands() || !examples.is_empty(),
                "{}: no example",
                command.get_name()
            );
            for example in examples {
                let words = words(&example);
                if let Err(error) = Arguments::try_parse_from(with_get(words.iter().map(OsString::from))) {
                    panic!("{example}\n{words:?}\n{error}");
                }
            }
        }
        judge(&Arguments::command());
    }

    /// The commands in a help: lines that begin with our name, with those that go on from them.
    fn examples(help: &str) -> Vec<String> {
        let joined = help.replace("\\\n", " ");
        let commands = joined.lines().flat_map(|line| line.split(['&', '|', '>']));
        commands
            .map(|line| {
                line.trim()
                    .trim_start_matches("sudo ")
                    .replacen("poolwright-agent ", "poolwright agent ", 1)
            })
            .filter(|line| line.starts_with("poolwright "))
            .collect()
    }

    /// The words of a command, up to what is said about it: that stands after two blanks.
    fn words(example: &str) -> Vec<String> {
        let (mut words, mut word, mut quote, mut blanks) = (Vec::new(), String::new(), None, 0);
        for c in example.chars() {
            match (c, quote) {
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                (' ', None) => {
                    blanks += 1;
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                    continue;
                }
                (c, _) => {
                    // A continued line is indented; what is said about a command is no option.
                    if blanks > 1 && c != '-' && !words.is_empty() && !example.contains(" --opens ") {
                        return words;
                    }
                    word.push(c);
                }
            }
            blanks = 0;
        }
        if !word.is_empty() {
            words.push(word);
        }
        words
    }
}
