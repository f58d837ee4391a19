//! A guest of QEMU that is none: it speaks QMP over a Unix socket, to one client at a time, and does as it is told.

use crate::lab::DEADLINE;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What it does otherwise than a good guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum How {
    #[default]
    Well,
    /// It lets go when the test says so, and not before.
    Stubborn,
    /// It says that it won't let go.
    Refuses,
    /// Its kernel still powers the slot on, and hears no wish until it is through.
    PowersOn,
    /// It is gone when it is asked this, before or after it was done.
    DiesBefore(&'static str),
    DiesAfter(&'static str),
    /// It hangs up on whoever comes, and is gone then.
    HangsUp,
    /// No QMP, no JSON, no end of a line, nothing at all.
    Greets(&'static str),
    Mute,
    /// It answers with the id of another question.
    Confused,
}

#[derive(Default)]
pub struct State {
    pub how: How,
    pub uuid: String,
    pub ports: Vec<String>,
    /// Each with the port that it is in.
    pub devices: BTreeMap<String, String>,
    /// Those that the guest was asked to let go of.
    pub leaving: BTreeSet<String>,
    /// The arguments of each device_add.
    pub added: Vec<Value>,
    pub files: u32,
    pub asked: Vec<String>,
    /// Connections that have ended.
    pub served: usize,
}

pub struct Guest {
    pub state: Arc<Mutex<State>>,
    let_go: Arc<Notify>,
    serving: JoinHandle<()>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Guest {
    pub fn start(socket: &Path, uuid: &str, ports: &[&str]) -> Self {
        let state = Arc::new(Mutex::new(State {
            uuid: uuid.to_owned(),
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            ..State::default()
        }));
        let let_go = Arc::new(Notify::new());
        let listener = UnixListener::bind(socket).unwrap();
        let (theirs, told) = (state.clone(), let_go.clone());
        let serving = tokio::spawn(async move {
            while let Ok((link, _)) = listener.accept().await {
                let then = serve(link, &theirs, &told).await;
                theirs.lock().unwrap().served += 1;
                if then == Then::Dead {
                    return;
                }
            }
        });
        Self {
            state,
            let_go,
            serving,
        }
    }

    pub fn is(&self, how: How) {
        self.state.lock().unwrap().how = how;
    }

    pub fn plug(&self, device: &str, port: &str) {
        let mut state = self.state.lock().unwrap();
        state.devices.insert(device.to_owned(), port.to_owned());
    }

    pub fn asked(&self, command: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.asked.iter().filter(|asked| *asked == command).count()
    }

    /// Waits without a timer, so it works where the test has paused tokio's clock; and since there is always something
    /// to do meanwhile, that clock does not go on by itself.
    pub async fn until(&self, what: &str, so: impl Fn(&State) -> bool) {
        let began = Instant::now();
        while !so(&self.state.lock().unwrap()) {
            assert!(began.elapsed() < DEADLINE, "waited in vain until {what}");
            tokio::task::yield_now().await;
        }
    }

    pub async fn until_asked(&self, command: &str, times: usize) {
        let count = |state: &State| state.asked.iter().filter(|asked| *asked == command).count();
        self.until(command, |state| count(state) >= times).await;
    }

    /// A stubborn one gives in.
    pub fn lets_go(&self) {
        self.let_go.notify_one();
    }
}

#[derive(PartialEq, Eq)]
enum Then {
    Alive,
    Dead,
}

async fn serve(link: UnixStream, state: &Mutex<State>, let_go: &Notify) -> Then {
    let mut link = BufReader::new(link);
    let how = state.lock().unwrap().how;
    let greeting = match how {
        How::Greets(words) => words.to_owned(),
        _ => {
            json!({"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 22}}, "capabilities": []}})
                .to_string()
                + "\n"
        }
    };
    if how == How::HangsUp {
        return Then::Dead;
    }
    if how == How::Mute {
        let mut nothing = String::new();
        let _ = link.read_line(&mut nothing).await;
        return Then::Alive;
    }
    let _ = link.get_mut().write_all(greeting.as_bytes()).await;
    loop {
        let mut line = String::new();
        let read = tokio::select! {
            read = link.read_line(&mut line) => read,
            () = let_go.notified() => {
                let events = ejected(&mut state.lock().unwrap());
                for event in events {
                    tell(&mut link, &event).await;
                }
                continue;
            }
        };
        if !matches!(read, Ok(read) if read > 0) {
            return Then::Alive;
        }
        let request: Value = serde_json::from_str(&line).unwrap();
        let command = request["execute"].as_str().unwrap().to_owned();
        let how = state.lock().unwrap().how;
        if matches!(how, How::DiesBefore(what) if what == command) {
            return Then::Dead;
        }
        let (answer, events) = answer(&mut state.lock().unwrap(), &command, &request["arguments"]);
        if matches!(how, How::DiesAfter(what) if what == command) {
            return Then::Dead;
        }
        let mut answer = match answer {
            Ok(value) => json!({ "return": value }),
            Err(why) => json!({ "error": {"class": "GenericError", "desc": why} }),
        };
        answer["id"] = match how {
            How::Confused => json!(99),
            _ => request["id"].clone(),
        };
        // An event may come before the answer that it belongs to.
        tell(&mut link, &json!({"event": "RTC_CHANGE", "data": {"offset": 0}})).await;
        tell(&mut link, &answer).await;
        for event in events {
            tell(&mut link, &event).await;
        }
    }
}

async fn tell(link: &mut BufReader<UnixStream>, what: &Value) {
    let _ = link.get_mut().write_all(format!("{what}\n").as_bytes()).await;
}

fn ejected(state: &mut State) -> Vec<Value> {
    let leaving = std::mem::take(&mut state.leaving);
    let event = |device: String| {
        state.devices.remove(&device);
        json!({"event": "DEVICE_DELETED", "data": {"device": device, "path": "/machine/peripheral/x"}})
    };
    leaving.into_iter().map(event).collect()
}

fn answer(state: &mut State, command: &str, arguments: &Value) -> (Result<Value, String>, Vec<Value>) {
    state.asked.push(command.to_owned());
    let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    let done = Ok(json!({}));
    match command {
        "qmp_capabilities" => (done, vec![]),
        "query-uuid" => (Ok(json!({ "UUID": state.uuid })), vec![]),
        "getfd" => {
            state.files += 1;
            (done, vec![])
        }
        "qom-list" => {
            let names = state.ports.iter().chain(state.devices.keys());
            let child = |name: &String| json!({"name": name, "type": "child<edu>"});
            let mut listed: Vec<Value> = names.map(child).collect();
            listed.insert(0, json!({"name": "type", "type": "string"}));
            (Ok(json!(listed)), vec![])
        }
        "qom-get" => {
            let path = text("path");
            let name = path.rsplit('/').next().unwrap_or_default();
            match state.devices.get(name) {
                Some(port) => (Ok(json!(format!("/machine/peripheral/{port}/{port}"))), vec![]),
                None if state.ports.iter().any(|port| port == name) => {
                    (Ok(json!("/machine/q35/pcihost/pcie.0")), vec![])
                }
                None => (Err(format!("Device '{name}' not found")), vec![]),
            }
        }
        "device_add" => (add(state, arguments), vec![]),
        "device_del" => delete(state, text("id")),
        _ => (Err(format!("The command {command} has not been found")), vec![]),
    }
}

fn add(state: &mut State, arguments: &Value) -> Result<Value, String> {
    let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    let (id, port) = (text("id"), text("bus"));
    state.added.push(arguments.clone());
    if !state.ports.contains(&port) {
        return Err(format!("Bus '{port}' not found"));
    }
    if state.devices.contains_key(&id) {
        return Err(format!("Duplicate device ID '{id}'"));
    }
    state.devices.insert(id, port);
    Ok(json!({}))
}

fn delete(state: &mut State, device: String) -> (Result<Value, String>, Vec<Value>) {
    if !state.devices.contains_key(&device) {
        return (Err(format!("Device '{device}' not found")), vec![]);
    }
    if state.how == How::PowersOn {
        let why = "Hot-unplug failed: guest is busy (power indicator blinking)";
        return (Err(why.to_owned()), vec![]);
    }
    if !state.leaving.insert(device.clone()) {
        let why = format!("Device {device} is already in the process of unplug");
        return (Err(why), vec![]);
    }
    let events = match state.how {
        How::Stubborn => vec![],
        How::Refuses => {
            state.leaving.clear();
            vec![json!({"event": "DEVICE_UNPLUG_GUEST_ERROR", "data": {"device": device, "path": "x"}})]
        }
        _ => ejected(state),
    };
    (Ok(json!({})), events)
}
