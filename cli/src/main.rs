//! The `poolwright` binary; [`poolwright_cli`] is all of it.

fn main() -> std::process::ExitCode {
    poolwright_cli::main()
}
