//! A manager at work for a while, in a process whose files are recorded.

use super::{ACKNOWLEDGED, Failed, POOL};
use crate::torture::line::{Line, spec_of};
use poolwright_emulator::clock::Clock;
use poolwright_emulator::{Emulation, Rack, in_process};
use poolwright_executor::Key;
use poolwright_model::id::{DemandId, OperationId};
use poolwright_service::clock::WallClock;
use poolwright_service::demand::DemandSpec;
use poolwright_service::endpoint::Standing;
use poolwright_service::{Change, Composer, How, Options, Release};
use poolwright_store::SqliteStore;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const RACK: &str = r#"
name = "power"
style = "zones"

[latency]
bind = "2ms"
unbind = "2ms"
enumeration = "2ms"
reset = "10ms"

[[box]]
count = 2
gpus = [{ kind = "h100-pcie-80gb", count = 32 }]

[[host]]
count = 16
slots = 8
"#;

const CLIENTS: usize = 8;
/// Each composes and releases so often.
const ROUNDS: usize = 3;
/// Acknowledgements after which the first process is gone from one moment to the next.
const DIES_AFTER: usize = 70;
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients were told, written down at once. One line is one write.
struct Told {
    file: File,
    lines: AtomicUsize,
    dies_after: usize,
}

impl Told {
    fn note(&self, line: std::fmt::Arguments<'_>) -> std::io::Result<()> {
        (&self.file).write_all(format!("{line}\n").as_bytes())?;
        if self.lines.fetch_add(1, Ordering::SeqCst) + 1 == self.dies_after {
            std::process::abort();
        }
        Ok(())
    }
}

/// One life of the manager in this folder. The first ends in the middle of its work.
pub async fn run(root: &Path, nth: usize) -> Result<(), Failed> {
    let told = OpenOptions::new()
        .create(true)
        .append(true)
        .open(root.join(ACKNOWLEDGED))?;
    let told = Arc::new(Told {
        file: told,
        lines: AtomicUsize::new(0),
        dies_after: if nth == 0 { DIES_AFTER } else { usize::MAX },
    });
    let emulation = Emulation::new(Rack::from_toml("power.toml", RACK)?, Clock::real());
    let drivers = in_process(&emulation);
    let names: Vec<String> = drivers
        .endpoints
        .iter()
        .map(|at| at.endpoint().to_string())
        .collect();
    let store = Arc::new(SqliteStore::open(&root.join(POOL))?);
    let mut options = Options {
        poll: None,
        ..Options::default()
    };
    // The rack answers at once: what was on its way at a cut has come true, or never will. In the first life nothing was.
    if nth > 0 {
        options.execute.act_deadline = Duration::from_secs(2);
        options.execute.late = Duration::from_secs(1);
    }
    let composer = Composer::open(store, Arc::new(Line { drivers }), Arc::new(WallClock), options).await?;
    if nth == 0 {
        for name in names {
            composer.add_endpoint(spec_of(&name), Standing::Adopted).await?;
        }
    }
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(ask(composer.clone(), told.clone(), format!("s{nth}c{client}")));
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    composer.close().await;
    Ok(())
}

/// Composes and releases, and writes down what it is told.
async fn ask(composer: Composer, told: Arc<Told>, name: String) -> Result<(), Failed> {
    for round in 0..ROUNDS {
        let demand = format!("{name}r{round}");
        let how = How {
            key: Some(format!("key-{demand}")),
            ..How::default()
        };
        let spec: DemandSpec = serde_json::from_value(serde_json::json!({
            "id": demand, "kind": "h100-pcie-80gb", "gpus": 1 + round % 2,
        }))?;
        let begun = composer.compose(spec, "client", &how).await?;
        told.note(format_args!(
            "key {} {}",
            Key::id_of("client", how.key.as_deref().unwrap_or_default()),
            id_of(&begun)?
        ))?;
        end(&composer, &told, &begun).await?;
        let what = Release::Demand(DemandId::new(demand)?);
        let begun = composer.release(what, "client", &How::default()).await?;
        told.note(format_args!("begun {}", id_of(&begun)?))?;
        end(&composer, &told, &begun).await?;
    }
    Ok(())
}

async fn end(composer: &Composer, told: &Told, begun: &Change) -> Result<(), Failed> {
    let ended = composer.wait(id_of(begun)?, PATIENCE).await?;
    Ok(told.note(format_args!("ended {} {}", ended.id, ended.state))?)
}

fn id_of(change: &Change) -> Result<&OperationId, Failed> {
    let begun = change.operation.as_ref().map(|operation| &operation.id);
    Ok(begun.ok_or("nothing was begun")?)
}
