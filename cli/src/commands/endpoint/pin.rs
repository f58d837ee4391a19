//! `endpoint pin`: the next certificate is believed before it is shown.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::names;
use crate::output::Output;
use crate::tables;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::PinChange;
use poolwright_service::endpoint::Endpoint;

pub const EXAMPLES: &str = "\
Examples:
  poolwright endpoint pin add box-1 NEW       before the certificate is renewed
  poolwright endpoint pin remove box-1 OLD    once it is

For services that are believed by --endpoint-pin. At most two certificates are believed, at least one. What an
authority has signed (--endpoint-ca) may be renewed without this.";

#[derive(Debug, clap::Subcommand)]
pub enum PinAction {
    /// Believe this certificate, too
    Add(PinArgs),
    /// Believe this certificate no more
    Remove(PinArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct PinArgs {
    #[arg(value_name = "NAME")]
    id: ControlEndpointId,
    /// Fingerprint: openssl x509 -in FILE -noout -fingerprint -sha256
    #[arg(value_name = "SHA256")]
    pin: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(action: PinAction, output: Output) -> Outcome {
    let (change, id, manager) = match action {
        PinAction::Add(PinArgs { id, pin, manager }) => (PinChange::Add(pin), id, manager),
        PinAction::Remove(PinArgs { id, pin, manager }) => (PinChange::Remove(pin), id, manager),
    };
    let api = Api::new(&manager)?;
    match api
        .post::<Endpoint>(&["endpoints", id.as_str(), "pins"], &change)
        .await
    {
        Ok(changed) => output.show(&changed, &tables::endpoints(std::slice::from_ref(&changed)))?,
        Err(failure) => return Err(names::suggest(&api, failure, &[("endpoints", id.as_str())]).await),
    }
    Ok(ExitCode::Ok)
}
