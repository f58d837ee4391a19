//! `release`: lets go of a demand with all that it holds, or of one composition.

use super::Outcome;
use super::change::{ChangeArgs, ForceArgs, Guarded};
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::Output;
use poolwright_model::nearest::{did_you_mean, nearest};
use poolwright_planner::Composition;
use poolwright_service::Release;
use poolwright_service::demand::DemandRecord;
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ReleaseArgs {
    /// Name of a demand, or of a composition; `demand/NAME` and `composition/NAME` say which
    #[arg(value_name = "DEMAND|COMPOSITION")]
    what: String,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright release chat --yes
  poolwright release chat --yes --max-detach 8
  poolwright release composition/chat-1f09c3-1 --dry-run";

#[derive(Serialize)]
struct LetGo {
    what: Release,
}

pub async fn run(args: ReleaseArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let guarded = Guarded {
        detach: args.detach,
        what: format!("release {}", args.what),
        ask: Ask::Always,
        plan: None,
    };
    let release = async |what: Release| {
        let (change, force) = (&args.change, args.force.clone());
        change
            .make_guarded(&api, &["release"], &LetGo { what }, force, &guarded, output)
            .await
    };
    let unknown = match find(&api, &args.what).await {
        Ok(what) => return release(what).await,
        Err(failure) => failure,
    };
    // If it was released under this key before, the manager replays that.
    let is_unknown = unknown.code == ExitCode::NotFound && args.change.key().is_some();
    for what in either(&args.what).filter(|_| is_unknown) {
        match release(what).await {
            Err(failure) if matches!(failure.code, ExitCode::NotFound | ExitCode::Conflict) => {
                tracing::debug!("not released under this key: {failure}");
            }
            done => return done,
        }
    }
    Err(unknown)
}

/// A name without a prefix may have been of either kind.
fn either(named: &str) -> impl Iterator<Item = Release> {
    let demand = named.parse().ok().map(Release::Demand);
    let composition = named.parse().ok().map(Release::Composition);
    demand.into_iter().chain(composition)
}

/// What is meant by the name: a demand goes first.
async fn find(api: &Api, named: &str) -> Result<Release, Failure> {
    let bad = |error: poolwright_model::id::InvalidId| Failure::usage(error.to_string());
    match named.split_once('/') {
        Some(("demand", name)) => return Ok(Release::Demand(name.parse().map_err(bad)?)),
        Some(("composition", name)) => return Ok(Release::Composition(name.parse().map_err(bad)?)),
        _ => {}
    }
    let demands: Vec<DemandRecord> = api.get(&["demands"]).await?;
    if let Some(found) = demands.iter().find(|record| record.spec.id.as_str() == named) {
        return Ok(Release::Demand(found.spec.id.clone()));
    }
    let compositions: Vec<Composition> = api.get(&["compositions"]).await?;
    if let Some(found) = compositions
        .iter()
        .find(|composition| composition.id.as_str() == named)
    {
        return Ok(Release::Composition(found.id.clone()));
    }
    let known = demands.iter().map(|record| record.spec.id.as_str());
    let known = known.chain(compositions.iter().map(|composition| composition.id.as_str()));
    let question = did_you_mean(&nearest(named, known)).map_or_else(String::new, |it| format!("{it} "));
    Err(Failure::new(
        ExitCode::NotFound,
        format!("there is neither a demand nor a composition {named:?}"),
    )
    .with_hint(format!(
        "{question}`poolwright get demands` and `poolwright get compositions` list what there is"
    )))
}
