//! Serves a recorded Redfish tree until it is stopped, for scripts and for trying things by hand.
//!
//! Prints `ready URL` on stdout once it answers, and the number of requests when it is stopped.
#![expect(clippy::print_stdout, reason = "stdout is how a script learns the address")]

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use poolwright_tests::{
    mockup_server::{MockupServer, Options},
    trees,
};

/// Serve a recorded Redfish tree, read only.
#[derive(Parser)]
struct Arguments {
    /// A folder that holds a tree, or the name of a recorded one (see --list).
    #[arg(long, required_unless_present = "list")]
    tree: Option<String>,
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Wait this long before each answer.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Ask for this user and password: USER:FILE, the password being the file's first line.
    #[arg(long)]
    basic_auth: Option<String>,
    /// Serve HTTPS, and write the authority's certificate to this file.
    #[arg(long)]
    ca_out: Option<PathBuf>,
    /// Print the folder that a named tree was unpacked to, and end.
    #[arg(long)]
    unpack: bool,
    /// Print the names of the recorded trees, and end.
    #[arg(long)]
    list: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve-tree: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if arguments.list {
        for name in trees::tree_names()? {
            println!("{name}");
        }
        return Ok(());
    }
    let tree = arguments.tree.unwrap_or_default();
    let folder = PathBuf::from(&tree);
    let folder = if folder.is_dir() {
        folder
    } else {
        trees::unpack_tree(&tree)?
    };
    if arguments.unpack {
        println!("{}", folder.display());
        return Ok(());
    }
    let options = Options {
        delay: Duration::from_millis(arguments.delay_ms),
        basic_auth: arguments.basic_auth.map(|text| credentials(&text)).transpose()?,
        tls: arguments.ca_out.is_some(),
    };
    let server = MockupServer::start_on(arguments.listen, &folder, options).await?;
    if let (Some(file), Some(pem)) = (&arguments.ca_out, &server.ca_pem) {
        std::fs::write(file, pem)?;
    }
    println!("ready {}", server.url);
    poolwright_tests::stopped().await?;
    eprintln!("requests {}", server.requests());
    Ok(())
}

fn credentials(text: &str) -> Result<(String, String), String> {
    let (user, file) = text.split_once(':').ok_or("--basic-auth takes USER:FILE")?;
    let content = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let password = content.lines().next().ok_or_else(|| format!("{file} is empty"))?;
    Ok((user.to_owned(), password.to_owned()))
}
