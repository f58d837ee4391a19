//! `endpoint rotate-password`: a service takes a password that nobody knows but the managers.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::names;
use crate::output::{Cell, Output, Table};
use poolwright_model::id::ControlEndpointId;
use poolwright_service::Rotated;
use serde_json::json;

pub const EXAMPLES: &str = "\
Example:
  poolwright endpoint rotate-password box-1

The new password is kept sealed before the service is asked, and counts once a login with it was let in. What was cut off
in between is carried on by the manager, or by the same command. After three logins that were refused nothing more is
sent, so that the account is not locked; then set a password at the service, and tell it: poolwright endpoint set.";

#[derive(Debug, clap::Args)]
pub struct RotateArgs {
    #[arg(value_name = "NAME")]
    id: ControlEndpointId,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: RotateArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let path = ["endpoints", args.id.as_str(), "rotate-password"];
    let rotated: Rotated = match api.post(&path, &json!({})).await {
        Ok(rotated) => rotated,
        Err(failure) => return Err(names::suggest(&api, failure, &[("endpoints", args.id.as_str())]).await),
    };
    let mut table = Table::new(["ENDPOINT", "ACCOUNT", "CHANGED"]);
    table.row([
        Cell::text(&rotated.endpoint),
        Cell::text(&rotated.username),
        Cell::text(rotated.at),
    ]);
    output.show(&rotated, &table)?;
    Ok(ExitCode::Ok)
}
