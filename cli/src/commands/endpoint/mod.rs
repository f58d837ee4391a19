//! `endpoint`: the management services that a manager speaks to; and, without a manager, a copy of one and a
//! test of what it can do.

mod accept;
mod credentials;
mod pin;
mod qualify;
mod record;
mod rotate;

use super::change::{ChangeArgs, ForceArgs};
use super::get::list;
use super::{Outcome, removed};
use crate::access::{AccessArgs, read_listing};
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::names;
use crate::output::human::counted;
use crate::output::{Output, Table, say};
use crate::tables;
use futures_util::StreamExt;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Endpoint, EndpointSpec, Repair, Standing};
use poolwright_service::{Adopting, EndpointTest};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct EndpointArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Have the manager speak to a service: it is connected and looked at once, then kept
    #[command(after_help = ADD)]
    Add(Box<AddArgs>),
    /// List the services that the manager speaks to
    #[command(after_help = "Example:\n  poolwright endpoint list")]
    List(ManagerArgs),
    /// Connect anew and look
    #[command(after_help = "Example:\n  poolwright endpoint test box-1")]
    Test(OneArgs),
    /// Show what a service that is only observed would bring along; --yes takes it over
    #[command(after_help = ADOPT)]
    Adopt(AdoptArgs),
    /// Show what vanished all at once from a service, which is not believed; --yes believes it
    #[command(after_help = accept::EXAMPLES)]
    Accept(accept::AcceptArgs),
    /// Say what is done about GPUs there that are held and bound to nothing, or give another account or password
    #[command(after_help = SET)]
    Set(SetArgs),
    /// Believe the next certificate of a service before it is shown, or the old one no more
    #[command(after_help = pin::EXAMPLES, subcommand)]
    Pin(pin::PinAction),
    /// Have a service take a new password, which the manager draws, keeps sealed and shows to nobody
    #[command(after_help = rotate::EXAMPLES)]
    RotatePassword(rotate::RotateArgs),
    /// Forget a service; refused while a composition holds GPUs through it
    #[command(after_help = "Example:\n  poolwright endpoint remove box-1 --yes")]
    Remove(RemoveArgs),
    /// Copy what a service shows, redacted, for `poolwright emulate --tree`; needs no manager
    Record(record::RecordArgs),
    /// Bind, read back and unbind one spare GPU, and take the times; needs no manager
    Qualify(qualify::QualifyArgs),
}

const ADD: &str = "\
Examples:
  poolwright endpoint add box-1 --url https://10.0.0.7 \\
      --endpoint-username admin --endpoint-password-file box-1.pw --endpoint-ca rack-ca.pem
  poolwright endpoint add --from rack/endpoints.json

Password and authority are sent to the manager, which keeps them, the password sealed: every manager of the same store
can log in there. With --by-reference files are read by the manager each time, in its directory of serve --endpoint-files.

A service is only observed at first: nothing is changed there before `poolwright endpoint adopt NAME --yes`. One that is
new, or the manager's own, is added with --adopt.";

const ADOPT: &str = "\
Examples:
  poolwright endpoint adopt box-1          what would become ours
  poolwright endpoint adopt box-1 --yes
  poolwright endpoint adopt box-1 --yes --take-over 'the old manager burnt down'

From then on the manager may change what is free there. What somebody else has bound becomes compositions, one a host;
nothing is moved or reset, and each binding is read back first. It may be repeated.

Where the service can carry a mark (ServiceIdentification), the manager's is written there. One that carries the mark of
another manager is refused (exit code 5): have it removed there, or take it over where that manager is gone.";

const SET: &str = "\
Examples:
  poolwright endpoint set box-1 --repair rebind     bind again what the fabric loses
  poolwright endpoint set box-1 --repair report     only tell it (poolwright diff)
  poolwright endpoint set box-1 --endpoint-password-file new.pw
  poolwright endpoint set box-1 --endpoint-username pool --endpoint-password-file pool.pw

Another password is kept once the service has let the manager in with it.

What is unbound again after three repairs within an hour is left alone; the same command lets it go on.";

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[arg(value_name = "NAME")]
    id: ControlEndpointId,
    /// report: only tell it; rebind: bind it again
    #[arg(long, value_name = "POLICY", value_parser = policy, required_unless_present = "endpoint_password_file")]
    repair: Option<Repair>,
    #[command(flatten)]
    credentials: credentials::CredentialArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

fn policy(text: &str) -> Result<Repair, String> {
    match text {
        "report" => Ok(Repair::Report),
        "rebind" => Ok(Repair::Rebind),
        _ => Err("it is report or rebind".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// What to call it
    #[arg(value_name = "NAME", required_unless_present = "from", requires = "url")]
    name: Option<ControlEndpointId>,
    /// Its address
    #[arg(long, value_name = "URL", requires = "name")]
    url: Option<String>,
    #[command(flatten)]
    credentials: credentials::CredentialArgs,
    /// Certificate authority of the service, a PEM file
    #[arg(long, value_name = "FILE", group = "whom")]
    endpoint_ca: Option<PathBuf>,
    /// Believe exactly the certificate with this SHA-256 fingerprint
    #[arg(long, value_name = "SHA256", group = "whom")]
    endpoint_pin: Option<String>,
    /// Believe any certificate: whoever sits in between reads and changes everything
    #[arg(long, group = "whom")]
    insecure_tls: bool,
    /// Allow plain http to another machine: the password travels in the clear
    #[arg(long)]
    insecure_http: bool,
    /// The manager may change it at once: it is new, or the manager's own
    #[arg(long)]
    adopt: bool,
    /// Add all services of a list, as poolwright emulate writes it (endpoints.json)
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    from: Option<PathBuf>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    #[arg(value_name = "NAME")]
    id: ControlEndpointId,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct AdoptArgs {
    #[arg(value_name = "NAME")]
    id: ControlEndpointId,
    /// Take it over; without it, what that would be is only shown
    #[arg(long, short = 'y')]
    yes: bool,
    /// Take it from another manager whose mark it carries, for this reason
    #[arg(long, value_name = "REASON")]
    take_over: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub async fn run(args: EndpointArgs, output: Output) -> Outcome {
    match args.action {
        Action::Add(args) => return add(*args, output).await,
        Action::List(manager) => list(&Api::new(&manager)?, "endpoints", output, tables::endpoints).await?,
        Action::Test(one) => {
            let path = ["endpoints", one.id.as_str(), "test"];
            let test: EndpointTest = Api::new(&one.manager)?
                .post(&path, &serde_json::json!({}))
                .await?;
            show(
                &[Tested {
                    endpoint: one.id,
                    test,
                }],
                output,
            )?;
        }
        Action::Adopt(args) => return adopt(args, output).await,
        Action::Accept(args) => return accept::run(args, output).await,
        Action::RotatePassword(args) => return rotate::run(args, output).await,
        Action::Pin(action) => return pin::run(action, output).await,
        Action::Set(args) => set(args, output).await?,
        Action::Remove(RemoveArgs { one, confirm }) => {
            let api = Api::new(&one.manager)?;
            confirm.confirm(&format!("forget endpoint {}", one.id))?;
            api.delete(&["endpoints", one.id.as_str()]).await?;
            removed::show("endpoint", &one.id, output)?;
        }
        Action::Record(args) => return record::run(args, output).await,
        Action::Qualify(args) => return qualify::run(args, output).await,
    }
    Ok(ExitCode::Ok)
}

/// What an endpoint answered when it was tried.
#[derive(Serialize)]
struct Tested {
    endpoint: ControlEndpointId,
    #[serde(flatten)]
    test: EndpointTest,
}

fn show(tested: &[Tested], output: Output) -> Result<(), Failure> {
    let mut table = Table::new([
        "ENDPOINT",
        "GPUS",
        "COMPOSABLE",
        "HOSTS",
        "FABRICS",
        "FAULTS",
        "REQUESTS",
    ]);
    for Tested { endpoint, test } in tested {
        table.row([
            endpoint.to_string(),
            test.gpus.to_string(),
            test.composable.to_string(),
            test.hosts.to_string(),
            test.fabrics.to_string(),
            test.faults.to_string(),
            test.requests.to_string(),
        ]);
    }
    match tested {
        [one] => output.show(one, &table),
        all => output.show(&all, &table),
    }
}

async fn set(args: SetArgs, output: Output) -> Result<(), Failure> {
    let api = Api::new(&args.manager)?;
    let id = args.id.as_str();
    let asked = async {
        if let Some(body) = args.credentials.body()? {
            let _: EndpointTest = api.post(&["endpoints", id, "credentials"], &body).await?;
        }
        match args.repair {
            Some(policy) => {
                let body = json!({ "policy": policy });
                api.post::<Endpoint>(&["endpoints", id, "repair"], &body).await
            }
            None => api.get(&["endpoints", id]).await,
        }
    };
    match asked.await {
        Ok(set) => output.show(&set, &tables::endpoints(std::slice::from_ref(&set))),
        Err(failure) => Err(names::suggest(&api, failure, &[("endpoints", id)]).await),
    }
}

/// So many are added side by side.
const AT_ONCE: usize = 8;
/// After so many the next line says so.
const TOLD_EACH: usize = 100;

async fn add(args: AddArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let mut tested = Vec::new();
    let mut failed = Vec::new();
    let wanted = wanted(&args)?;
    let all = wanted.len();
    let adopted = [("adopted", if args.adopt { "true" } else { "false" })];
    let adding = futures_util::stream::iter(wanted).map(|spec| async {
        let body = credentials::with_password(&spec);
        let added = api
            .post_where::<EndpointTest>(&["endpoints"], &adopted, &body)
            .await;
        (spec.id, added)
    });
    let mut adding = adding.buffered(AT_ONCE);
    while let Some((endpoint, added)) = adding.next().await {
        match added {
            Ok(test) => tested.push(Tested { endpoint, test }),
            Err(failure) => failed.push((endpoint, failure)),
        }
        let done = tested.len() + failed.len();
        if done % TOLD_EACH == 0 && done < all {
            say(&format!("{done} of {} asked", counted(all, "endpoint")));
        }
    }
    if !tested.is_empty() {
        show(&tested, output)?;
        if !args.adopt {
            say("only observed for now: poolwright endpoint adopt NAME shows what was there before");
        }
    }
    match (failed.len(), failed.pop()) {
        (_, None) => Ok(ExitCode::Ok),
        (1, Some((_, failure))) if tested.is_empty() => Err(failure),
        (count, Some(last)) => {
            failed.push(last);
            let message = format!(
                "{} not added, {} added: {}",
                counted(count, "endpoint"),
                tested.len(),
                told(&failed)
            );
            let failure = Failure::new(ExitCode::Partial, message);
            let conflict = failed
                .iter()
                .any(|(_, failure)| failure.code == ExitCode::Conflict);
            Err(match (conflict, failed.pop()) {
                (true, _) => failure.with_hint(
                    "remove existing endpoints from the list, or delete them first: poolwright endpoint remove NAME",
                ),
                (false, last) => Failure {
                    hint: last.and_then(|(_, failure)| failure.hint),
                    ..failure
                },
            })
        }
    }
}

/// Each that was not added, with why; of very many the first.
fn told(failed: &[(ControlEndpointId, Failure)]) -> String {
    const SHOWN: usize = 8;
    let shown = failed.iter().take(SHOWN);
    let mut told: Vec<String> = shown
        .map(|(id, failure)| match failure.message.contains(id.as_str()) {
            true => failure.message.clone(),
            false => format!("{id}: {}", failure.message),
        })
        .collect();
    if failed.len() > SHOWN {
        told.push(format!("and {} more", failed.len() - SHOWN));
    }
    told.join("; ")
}

async fn adopt(args: AdoptArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let path = ["endpoints", args.id.as_str(), "adopt"];
    if args.yes && !args.change.is_dry_run() {
        let (body, force) = (json!({ "take_over": args.take_over }), ForceArgs::default());
        let done = format!("endpoint {} is adopted", args.id);
        let made = args
            .change
            .make_known(&api, &path, &body, force, Some(&done), output);
        return match made.await {
            Ok(code) => Ok(code),
            Err(failure) => Err(names::suggest(&api, failure, &[("endpoints", args.id.as_str())]).await),
        };
    }
    let would: Adopting = match api
        .post(
            &path,
            &json!({ "how": { "dry_run": true }, "take_over": args.take_over }),
        )
        .await
    {
        Ok(would) => would,
        Err(failure) => return Err(names::suggest(&api, failure, &[("endpoints", args.id.as_str())]).await),
    };
    let composes = &would.change.plan.composes;
    output.show_as(&would, &tables::compositions(composes), |width| {
        let gpus: u32 = composes.iter().map(|composition| composition.gpu_count()).sum();
        let mut text = match composes.is_empty() {
            true => "nothing is bound there that would become ours\n".to_owned(),
            false => format!(
                "{} bound by others would become ours:\n{}",
                counted(gpus as usize, "GPU"),
                tables::compositions(composes).render(width)
            ),
        };
        for left in &would.left {
            text.push_str(&format!("{} stays as it is: {}\n", left.gpu, left.because));
        }
        text
    })?;
    let kept: Endpoint = api.get(&["endpoints", args.id.as_str()]).await?;
    say(match (kept.standing, composes.is_empty()) {
        (Standing::Adopted, true) => "it is adopted already, and there is nothing more to take over",
        _ => "nothing was done; --yes adopts it",
    });
    Ok(ExitCode::Ok)
}

/// What is to be added.
fn wanted(args: &AddArgs) -> Result<Vec<EndpointSpec>, Failure> {
    let access = AccessArgs {
        username: args.credentials.endpoint_username.clone(),
        password_file: args.credentials.endpoint_password_file.clone(),
        ca: args.endpoint_ca.clone(),
        pin: args.endpoint_pin.clone(),
        insecure_tls: args.insecure_tls,
        insecure_http: args.insecure_http,
    };
    let mut specs = match (&args.from, &args.name, &args.url) {
        (Some(file), ..) => read_listing(file, &access)?,
        (None, Some(name), Some(url)) => vec![access.endpoint(Some(name.as_str()), url)],
        _ => {
            return Err(
                Failure::usage("neither a name with --url nor --from is given").with_hint("see --help")
            );
        }
    };
    for spec in &mut specs {
        args.credentials.settle(spec)?;
    }
    Ok(specs)
}
