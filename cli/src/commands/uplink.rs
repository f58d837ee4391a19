//! `uplink`: how many GPUs may be attached across the uplinks of switches.

use super::Outcome;
use super::removed;
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::output::{Output, say};
use crate::tables;
use poolwright_service::uplink::{NewUplink, UplinkStatus};

#[derive(Debug, clap::Args)]
pub struct UplinkArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List switches, with how many GPUs are attached across their uplinks and how many may be
    #[command(after_help = "Example:\n  poolwright uplink list")]
    List(ManagerArgs),
    /// Say how many GPUs may be attached across the uplinks of a switch at a time
    #[command(after_help = SET)]
    Set(SetArgs),
    /// Let any number be attached across the uplinks of a switch
    #[command(after_help = "Example:\n  poolwright uplink remove box-1:PCIe/switch-2 --yes")]
    Remove(RemoveArgs),
}

const SET: &str = "\
Examples:
  poolwright uplink set box-1:PCIe/switch-2 --gpus 8
  poolwright uplink set box-1:PCIe/switch-2 --gpus 0

A GPU that is attached to a host's port at another switch counts in the uplinks of both switches. No plan attaches more across
them than may be; what is attached already stays.";

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[arg(value_name = "FABRIC/SWITCH")]
    switch: String,
    /// GPUs that may be attached across its uplinks at a time; 0: only to hosts at the switch itself
    #[arg(long, value_name = "GPUS")]
    gpus: u32,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[arg(value_name = "FABRIC/SWITCH")]
    switch: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: UplinkArgs, output: Output) -> Outcome {
    match args.action {
        Action::List(manager) => {
            let uplinks: Vec<UplinkStatus> = Api::new(&manager)?.get(&["uplinks"]).await?;
            output.show(&uplinks, &tables::uplinks(&uplinks))?;
        }
        Action::Set(SetArgs {
            switch,
            gpus,
            manager,
        }) => {
            let path = ["uplinks", switch.as_str()];
            let status: UplinkStatus = Api::new(&manager)?.post(&path, &NewUplink { gpus }).await?;
            if status.over() > 0 {
                let across = status.carried;
                say(&format!(
                    "{across} GPUs are attached across already: they stay, and no more come"
                ));
            }
            output.show(&status, &tables::uplinks(std::slice::from_ref(&status)))?;
        }
        Action::Remove(RemoveArgs {
            switch,
            confirm,
            manager,
        }) => {
            let api = Api::new(&manager)?;
            confirm.confirm(&format!(
                "let any number of GPUs be attached across the uplinks of switch {switch}"
            ))?;
            api.delete(&["uplinks", switch.as_str()]).await?;
            removed::show("uplink", &switch, output)?;
        }
    }
    Ok(ExitCode::Ok)
}
