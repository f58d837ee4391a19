//! One connection to a guest's QMP socket: commands with their answers, and the events that come in between.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;

/// The longest line that is read.
const LONGEST: u64 = 1 << 20;
/// How often somebody connects who is hung up on, and with which pause.
const TRIES: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(100);
/// Where QEMU has what was given an id.
const DEVICES: &str = "/machine/peripheral";

/// Why a guest did not do or say what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nobody listens at its socket: it does not run.
    Off(String),
    /// QEMU said no; nothing changed.
    Refused(String),
    /// The connection ended, or what came can't be read: nobody knows.
    Lost(String),
}

impl Trouble {
    pub fn message(&self) -> &str {
        match self {
            Self::Off(message) | Self::Refused(message) | Self::Lost(message) => message,
        }
    }
}

type Answer<T> = Result<T, Trouble>;

/// What a guest says about taking a device out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unplugged {
    Gone,
    /// The guest won't.
    Refused,
}

pub(crate) struct Monitor {
    link: BufReader<UnixStream>,
    /// QEMU's version, as it greeted.
    pub version: String,
    last_id: u64,
    unplugged: Vec<(String, Unplugged)>,
    /// What came of a line so far: whoever stops waiting for the rest loses nothing.
    line: Vec<u8>,
}

impl Monitor {
    /// Waits until QEMU is through with whoever it serves there: bound it. A guest that ends just now hangs up on those
    /// who wait: whoever connects again finds that nobody listens.
    pub async fn connect(path: &Path) -> Answer<Self> {
        let mut tries = 1;
        loop {
            match Self::greeted(path).await {
                Err(Trouble::Lost(_)) if tries < TRIES => tries += 1,
                Err(trouble) => return Err(trouble),
                Ok(mut monitor) => {
                    monitor.execute("qmp_capabilities", json!({})).await?;
                    return Ok(monitor);
                }
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    async fn greeted(path: &Path) -> Answer<Self> {
        let link = UnixStream::connect(path).await.map_err(|error| {
            let message = format!("{}: {error}", path.display());
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Trouble::Off(message),
                _ => Trouble::Lost(message),
            }
        })?;
        let mut monitor = Self {
            link: BufReader::new(link),
            version: String::new(),
            last_id: 0,
            unplugged: Vec::new(),
            line: Vec::new(),
        };
        let greeting = monitor.line().await?;
        let Some(version) = greeting.pointer("/QMP/version/qemu") else {
            return Err(lost("what listens there is no QMP"));
        };
        let part = |name: &str| version[name].as_u64().unwrap_or_default();
        monitor.version = format!("{}.{}.{}", part("major"), part("minor"), part("micro"));
        Ok(monitor)
    }

    pub async fn execute(&mut self, command: &str, arguments: Value) -> Answer<Value> {
        let (id, bytes) = self.request(command, &arguments);
        let sent = self.link.get_mut().write_all(&bytes).await;
        sent.map_err(|error| lost(&error.to_string()))?;
        self.answer(command, id).await
    }

    /// Hands QEMU an open file, which it knows by that name for as long as this connection lasts.
    pub async fn give_file(&mut self, name: &str, file: impl AsFd) -> Answer<()> {
        let (id, bytes) = self.request("getfd", &json!({ "fdname": name }));
        let sent = self.send_with(&bytes, file.as_fd()).await;
        sent.map_err(|error| lost(&error.to_string()))?;
        self.answer("getfd", id).await.map(|_| ())
    }

    /// Whether a device is plugged in anywhere.
    pub async fn has(&mut self, device: &str) -> Answer<bool> {
        Ok(self.named().await?.iter().any(|name| name == device))
    }

    /// What was given an id.
    async fn named(&mut self) -> Answer<Vec<String>> {
        let listed = self.execute("qom-list", json!({ "path": DEVICES })).await?;
        let listed = listed.as_array().ok_or_else(|| lost("qom-list gave no list"))?;
        let is_child = |entry: &&Value| {
            entry["type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("child<"))
        };
        let children = listed.iter().filter(is_child);
        let names = children.filter_map(|entry| entry["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// The devices that were given an id, each with the id of what it is plugged into.
    pub async fn plugged(&mut self) -> Answer<BTreeMap<String, String>> {
        let names = self.named().await?;
        let mut plugged = BTreeMap::new();
        for name in names {
            let asked = json!({ "path": format!("{DEVICES}/{name}"), "property": "parent_bus" });
            match self.execute("qom-get", asked).await {
                // "/machine/peripheral/PORT/PORT": the port, and the bus that it has.
                Ok(bus) => {
                    let port = bus.as_str().and_then(|path| path.rsplit('/').next());
                    plugged.insert(name, port.unwrap_or_default().to_owned());
                }
                // It went in between, or is no device.
                Err(Trouble::Refused(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(plugged)
    }

    /// Waits until the guest has let go of a device, or says that it won't: bound it. Whoever stops waiting may wait again.
    pub async fn until_unplugged(&mut self, device: &str) -> Answer<Unplugged> {
        loop {
            if let Some((_, how)) = self.unplugged.iter().find(|(name, _)| name == device) {
                return Ok(*how);
            }
            let said = self.line().await?;
            self.hear(&said);
        }
    }

    fn request(&mut self, command: &str, arguments: &Value) -> (u64, Vec<u8>) {
        self.last_id += 1;
        let request = json!({ "execute": command, "arguments": arguments, "id": self.last_id });
        (self.last_id, format!("{request}\n").into_bytes())
    }

    async fn answer(&mut self, command: &str, id: u64) -> Answer<Value> {
        loop {
            let mut said = self.line().await?;
            if said.get("event").is_some() {
                self.hear(&said);
            } else if said["id"] != id {
                return Err(lost(&format!("{command}: the answer is to another question")));
            } else if let Some(error) = said.get("error") {
                let text = error["desc"].as_str().unwrap_or("an error without words");
                return Err(Trouble::Refused(format!("{command}: {text}")));
            } else {
                return Ok(said["return"].take());
            }
        }
    }

    fn hear(&mut self, said: &Value) {
        let how = match said["event"].as_str() {
            Some("DEVICE_DELETED") => Unplugged::Gone,
            Some("DEVICE_UNPLUG_GUEST_ERROR") => Unplugged::Refused,
            _ => return,
        };
        if let Some(device) = said.pointer("/data/device").and_then(Value::as_str) {
            self.unplugged.push((device.to_owned(), how));
        }
    }

    async fn line(&mut self) -> Answer<Value> {
        let mut some = (&mut self.link).take(LONGEST);
        let read = some.read_until(b'\n', &mut self.line).await;
        let line = std::mem::take(&mut self.line);
        match read {
            Err(error) => Err(lost(&error.to_string())),
            Ok(_) if line.is_empty() => Err(lost("it hung up")),
            Ok(_) if !line.ends_with(b"\n") => Err(lost("a line that does not end")),
            Ok(_) => serde_json::from_slice(&line).map_err(|error| lost(&format!("no JSON came: {error}"))),
        }
    }

    /// The file travels beside the first of these bytes.
    async fn send_with(&mut self, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
        let link = self.link.get_ref();
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let files = [file];
            if !beside.push(SendAncillaryMessage::ScmRights(&files)) {
                return Err(io::Error::other("the file does not fit beside the message"));
            }
            let sent = sendmsg(link, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?;
            Ok(sent)
        };
        let sent = link.async_io(Interest::WRITABLE, send).await?;
        self.link
            .get_mut()
            .write_all(bytes.get(sent..).unwrap_or_default())
            .await
    }
}

fn lost(what: &str) -> Trouble {
    Trouble::Lost(what.to_owned())
}
