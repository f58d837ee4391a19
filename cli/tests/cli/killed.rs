//! A manager under load that is killed with SIGKILL again and again, at moments that are left to chance: nothing that
//! it acknowledged is forgotten, nothing is done twice, nothing leaks.
//!
//! Clients ask through the command line. What was cut off they ask for again under the same key, of the manager that
//! comes after. At the end the rack's own services are asked what is bound, not the manager.

use crate::database::Database;
use crate::support::{Manager, Rack, run_with};
use fastrand::Rng;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Each part takes a little, so that a kill meets all of them.
const RACK: &str = r#"
name = "busy"
style = "zones"

[latency]
bind = "60ms"
unbind = "40ms"
enumeration = "30ms"
reset = "50ms"

[[box]]
count = 2
gpus = [{ kind = "h100-pcie-80gb", count = 32 }]

[[host]]
count = 12
slots = 8
"#;

const CLIENTS: usize = 3;
/// A manager lives for so many answers …
const ANSWERS: std::ops::Range<usize> = 1..4;
/// … and then so many milliseconds, in which the next ones are at work.
const AND_THEN: std::ops::Range<u64> = 0..150;
/// Where every client was cut off, no answer comes any more.
const ANSWERED: Duration = Duration::from_secs(30);
/// Everything that was in flight is classified by then, or has come further since: how fast hangs on what else the machine
/// does.
const CLASSIFIED: Duration = Duration::from_secs(90);
/// An outcome that nobody knows is held for as long as it may still come, 24 s here; and others wait for it, each for
/// the one before. Shorter than the 300 s after which nextest ends a test, so that the test can report its condition.
const SETTLED: Duration = Duration::from_secs(240);

/// Fault 1: the real program, at moments that are left to chance.
/// Fault 63: whoever kills it.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_operations_survive_four_kills() {
    lives_and_deaths(&["--request-deadline", "4s"], 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_operations_survive_twenty_kills() {
    lives_and_deaths(&["--request-deadline", "4s"], 20).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn acknowledged_operations_survive_ten_kills_on_postgres() {
    let database = Database::new("kills");
    let url = database.url("poolwright");
    lives_and_deaths(&["--store", &url, "--request-deadline", "4s"], 10).await;
}

async fn lives_and_deaths(options: &[&str], kills: usize) {
    let seed = std::env::var("POOLWRIGHT_TEST_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("seed {seed}: POOLWRIGHT_TEST_SEED={seed} kills at the same moments again");
    let mut rng = Rng::with_seed(seed);
    let (rack, folder) = (Rack::start(RACK).await, tempfile::tempdir().unwrap());
    let data = folder.path().join("manager");
    let manager = Manager::start(&data, options).await;
    manager.adopt(&rack).await;
    let address = manager.server.url.trim_start_matches("https://").to_owned();
    let answers = Arc::new(watch::Sender::new(0));
    let client = |nth| Client::new(nth, rng.u64(..), folder.path(), answers.clone());
    let mut clients: Vec<Client> = (0..CLIENTS).map(client).collect();
    let mut manager = Arc::new(manager);
    let (mut killed, mut caught) = (0, 0);
    // The number of operations in flight at a kill depends on the machine's speed.
    while killed < kills || caught < kills / 4 {
        assert!(
            killed < 3 * kills,
            "seed {seed}: of {killed} kills only {caught} hit anything"
        );
        killed += 1;
        let mut answered = answers.subscribe();
        let enough = *answered.borrow() + rng.usize(ANSWERS);
        let at_work = clients
            .into_iter()
            .map(|client| tokio::spawn(client.work(manager.clone())));
        let at_work: Vec<_> = at_work.collect();
        // Where everything is refused it ends all the same.
        let _ = tokio::time::timeout(ANSWERED, answered.wait_for(|so_far| *so_far >= enough)).await;
        // The moment is left to chance: nothing is waited for.
        tokio::time::sleep(Duration::from_millis(rng.u64(AND_THEN))).await;
        manager.server.signal("KILL").await;
        clients = Vec::new();
        for client in at_work {
            clients.push(client.await.unwrap());
        }
        Arc::into_inner(manager).unwrap().server.kill().await;
        rack.check_single_owners();
        manager = Arc::new(Manager::start_at(&data, &address, options).await);
        caught += classified(&manager).await;
    }
    // Whatever was cut off is asked for once more, and then all comes to rest.
    for client in &mut clients {
        client.repeat(&manager).await;
    }
    let is_over = |open: &Value| open.as_array().unwrap().is_empty();
    manager
        .until_within(SETTLED, "ops list --unfinished -o json", is_over)
        .await;

    let ended = all_operations(&manager).await;
    let acknowledged: BTreeSet<&String> = clients.iter().flat_map(|client| &client.acknowledged).collect();
    for id in &acknowledged {
        let state = ended
            .get(*id)
            .unwrap_or_else(|| panic!("seed {seed}: {id} is forgotten"));
        let known = ["completed", "rolled-back", "cancelled", "failed"].contains(&state.as_str());
        assert!(known, "seed {seed}: {id} is {state}");
    }
    let done = ended.values().filter(|state| *state == "completed").count();
    eprintln!(
        "{} operations acknowledged, {done} completed; {caught} were in flight at a kill",
        acknowledged.len()
    );
    assert!(
        acknowledged.len() >= kills && done >= kills,
        "seed {seed}: too little was done"
    );
    assert_eq!(
        bound(&rack).await,
        recorded(&manager).await,
        "seed {seed}: rack (left) and records (right)"
    );
    manager.run("doctor").await.expect(0, &[]);
    let demands = names(&manager.run("demand list -o json").await.json());
    let releasing = demands.iter().map(|demand| release(&manager, demand));
    let released = tokio::time::timeout(SETTLED, futures_util::future::join_all(releasing)).await;
    assert!(released.is_ok(), "seed {seed}: not all is let go of");
    let left = bound(&rack).await;
    assert!(
        left.is_empty(),
        "seed {seed}: a GPU leaked: {left:?}; of {demands:?}; {}; {}",
        manager.run("get compositions").await.out,
        manager.run("ops list --all").await.out
    );
    assert!(rack.bindings().is_empty(), "seed {seed}: a GPU leaked");
}

/// Lets go of a demand. What is rolled back, where a request took longer than it may, is asked for again; whatever else is
/// wrong ends the test.
async fn release(manager: &Manager, demand: &str) {
    loop {
        let ran = manager.run(&format!("release {demand} --yes")).await;
        match ran.code {
            0 => return,
            1 if ran.err.contains("is rolled-back") => {}
            _ => panic!("{demand} can't be let go of: {ran:?}"),
        }
    }
}

/// Nobody knows what became of it, and it says so; or nothing of it is in flight, and it waits for one of those.
fn is_classified(operation: &Value) -> bool {
    let steps = operation["steps"].as_array().unwrap();
    let in_flight = |step: &&Value| step["state"] == "running" || step["state"] == "undoing";
    let waits = |step: &&Value| {
        let what = step["waiting_for"].as_str().unwrap_or_default();
        what.starts_with("its turn at ")
    };
    match operation["state"].as_str().unwrap() {
        "indeterminate" | "quarantined" => true,
        _ => steps.iter().any(|step| waits(&step)) && !steps.iter().any(|step| in_flight(&step)),
    }
}

/// Waits until of all that was in flight it is known what it is. Tells how many there were.
async fn classified(manager: &Manager) -> usize {
    let first = Cell::new(None);
    let last = RefCell::new((String::new(), Instant::now()));
    let is_clear = |open: &Value| {
        let (mut last, now) = (last.borrow_mut(), open.to_string());
        if last.0 != now {
            *last = (now, Instant::now());
        }
        let stood = last.1.elapsed();
        assert!(
            stood < CLASSIFIED,
            "not classified, and as it is for {stood:?}: {}",
            last.0
        );
        let open = open.as_array().unwrap();
        first.set(first.get().or(Some(open.len())));
        open.iter().all(is_classified)
    };
    manager.until("ops list --unfinished -o json", is_clear).await;
    first.get().unwrap_or_default()
}

async fn all_operations(manager: &Manager) -> BTreeMap<String, String> {
    let all = manager.run("ops list --all -o json").await.expect(0, &[]).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = all.as_array().unwrap().iter();
    all.map(|operation| (text(&operation["id"]), text(&operation["state"])))
        .collect()
}

/// Which GPU is bound to which port, as the services of the rack show it to somebody else.
async fn bound(rack: &Rack) -> BTreeMap<String, String> {
    let [listing, password, ca] = ["endpoints.json", "password", "ca.pem"].map(|name| rack.file(name));
    let ask = ["discover", "--endpoints", &listing, "--username", "admin"];
    let access = ["--password-file", &password, "--ca", &ca, "-o", "json"];
    let seen = run_with(ask.into_iter().chain(access))
        .await
        .expect(0, &[])
        .json();
    let gpus = seen["gpus"].as_array().unwrap().iter();
    let bound = gpus.filter_map(|gpu| {
        Some((
            gpu["id"].as_str()?.to_owned(),
            gpu["host_port"].as_str()?.to_owned(),
        ))
    });
    bound.collect()
}

/// The same, as the compositions have it.
async fn recorded(manager: &Manager) -> BTreeMap<String, String> {
    let mut recorded = BTreeMap::new();
    let compositions = manager
        .run("get compositions -o json")
        .await
        .expect(0, &[])
        .json();
    for composition in compositions.as_array().unwrap() {
        for held in composition["held"].as_array().unwrap() {
            for gpu in held["gpus"].as_array().unwrap() {
                let (gpu, port) = (gpu.as_str().unwrap(), held["host_port"].as_str().unwrap());
                let twice = recorded.insert(gpu.to_owned(), port.to_owned());
                assert!(twice.is_none(), "{gpu} is in two compositions");
            }
        }
    }
    recorded
}

fn names(demands: &Value) -> Vec<String> {
    let demands = demands.as_array().unwrap().iter();
    demands
        .map(|demand| demand["spec"]["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Somebody who asks for changes, one after the other, and repeats what was cut off.
struct Client {
    rng: Rng,
    name: String,
    folder: PathBuf,
    asked: u32,
    /// Demands that may be there.
    demands: Vec<String>,
    /// What was asked for and not answered, with its key.
    cut_off: Option<String>,
    acknowledged: Vec<String>,
    /// Counted for all.
    answers: Arc<watch::Sender<usize>>,
}

impl Client {
    fn new(nth: usize, seed: u64, folder: &Path, answers: Arc<watch::Sender<usize>>) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            name: format!("c{nth}"),
            folder: folder.to_owned(),
            asked: 0,
            demands: Vec::new(),
            cut_off: None,
            acknowledged: Vec::new(),
            answers,
        }
    }

    /// Asks until the manager is gone.
    async fn work(mut self, manager: Arc<Manager>) -> Self {
        loop {
            self.repeat(&manager).await;
            if self.cut_off.is_some() {
                return self;
            }
            self.asked += 1;
            let change = match self.rng.u32(0..10) {
                0..4 => self.compose(),
                4 => match self.recompose(&manager).await {
                    Some(change) => change,
                    None => return self,
                },
                _ => match self.demands.len() {
                    0 => self.compose(),
                    many => format!(
                        "release {} --yes",
                        self.demands.swap_remove(self.rng.usize(0..many))
                    ),
                },
            };
            self.cut_off = Some(format!(
                "{change} --no-wait -o json --key {}-{}",
                self.name, self.asked
            ));
        }
    }

    fn compose(&mut self) -> String {
        let (demand, gpus) = (format!("{}-{}", self.name, self.asked), self.rng.u32(1..3));
        self.demands.push(demand.clone());
        format!("compose --gpus {gpus} --name {demand}")
    }

    /// Adds a demand, and has a plan made that serves it; `None` where the manager is gone.
    async fn recompose(&mut self, manager: &Manager) -> Option<String> {
        let demand = format!("{}-{}", self.name, self.asked);
        let file = self.folder.join(format!("{demand}.json"));
        let file = file.to_str().unwrap();
        for line in [
            format!("demand add {demand} --gpus 1"),
            format!("plan --out {file}"),
        ] {
            if manager.run(&line).await.code != 0 {
                return None;
            }
        }
        self.demands.push(demand);
        Some(format!("apply {file} --yes"))
    }

    /// Asks for what was not answered, under its key. It stays where the manager gives no answer.
    async fn repeat(&mut self, manager: &Manager) {
        let Some(line) = &self.cut_off else { return };
        let ran = manager.run(line).await;
        match ran.code {
            0 => {
                let change = ran.json();
                self.acknowledged
                    .extend(change["operation"]["id"].as_str().map(str::to_owned));
            }
            // Not there, in somebody's hands, or no longer as it was.
            3 | 5 | 6 => {}
            // Nobody answers, or the answer was lost.
            9 | 10 => return,
            other => panic!("{other}: {line}: {ran:?}"),
        }
        self.cut_off = None;
        self.answers.send_modify(|count| *count += 1);
    }
}
