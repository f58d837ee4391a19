//! Serves one kind of bad input until it is stopped. Prints `ready URL`, and when it is stopped what it saw.
#![expect(clippy::print_stdout, reason = "stdout is how a script learns the address")]

use std::{io, net::SocketAddr};

use clap::Parser;
use poolwright_tests::hostile::{HostileServer, Kind};

/// Answer as no machine should.
#[derive(Parser)]
struct Arguments {
    /// What is wrong with the server (see --list).
    #[arg(long, required_unless_present = "list")]
    kind: Option<Kind>,
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Print the kinds, and end.
    #[arg(long)]
    list: bool,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let Some(kind) = arguments.kind else {
        for (name, _) in Kind::ALL {
            println!("{name}");
        }
        return Ok(());
    };
    let server = HostileServer::start_on(arguments.listen, kind).await?;
    println!("ready {}", server.url);
    poolwright_tests::stopped().await?;
    println!(
        "requests {} credentials {} writes {} elsewhere {}",
        server.requests(),
        server.credentials(),
        server.writes(),
        server.elsewhere()
    );
    Ok(())
}
