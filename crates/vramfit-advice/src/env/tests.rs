use super::*;
use crate::error::ErrorKind;

fn launch(variables: &[(&str, &str)]) -> Launch {
    Launch {
        variables: variables
            .iter()
            .map(|(name, value)| Variable {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
                reason: "8.0 GiB of the GPU's 79.1 GiB".to_owned(),
            })
            .collect(),
        notes: vec!["the GPU is unknown".to_owned()],
        command: ["python", "train it.py"].map(str::to_owned).into(),
        gpus: 2,
        hosts: None,
        jax: "0.10.2".to_owned(),
        cuda_extra: "cuda13".to_owned(),
        image: "python:3.12-slim".to_owned(),
    }
}

fn text(format: Format, variables: &[(&str, &str)]) -> String {
    let files = write(format, &launch(variables)).unwrap();
    files.into_iter().map(|file| file.text).collect()
}

#[test]
fn every_format_has_the_variables_their_reasons_and_the_notes() {
    for format in Format::ALL {
        let text = text(format, &[("XLA_CLIENT_MEM_FRACTION", "0.1")]);
        let at = text.find("XLA_CLIENT_MEM_FRACTION").unwrap();
        let reason = text.find("# 8.0 GiB of the GPU's 79.1 GiB\n").unwrap();
        assert!(reason < at, "{}", format.name());
        assert!(text.contains("# Note: the GPU is unknown.\n"), "{}", format.name());
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{}", format.name());
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    assert!("bash".parse::<Format>().is_err());
}

#[test]
fn dollars_and_percent_signs_are_not_replaced() {
    let value = r#"$HOME "%n" 'x' \y"#;
    for (format, quoted) in [
        (Format::Shell, r#"V='$HOME "%n" '\''x'\'' \y'"#),
        (Format::Slurm, r#"V='$HOME "%n" '\''x'\'' \y'"#),
        (Format::Dockerfile, r#"V="\$HOME \"%n\" 'x' \\y""#),
        (Format::Compose, r#"V: "$$HOME \"%n\" 'x' \\y""#),
        (Format::Kubernetes, r#"value: "$$HOME \"%n\" 'x' \\y""#),
        (Format::Systemd, r#""V=$HOME \"%%n\" 'x' \\y""#),
        (Format::Devcontainer, r#"V=$HOME "%n" 'x' \y"#),
    ] {
        let text = text(format, &[("V", value)]);
        assert!(text.contains(quoted), "{}: {text}", format.name());
    }
}

#[test]
fn what_a_format_cannot_represent_is_rejected_and_not_altered() {
    for format in Format::ALL {
        let one_line = matches!(format, Format::Dockerfile | Format::Devcontainer);
        let broken = write(format, &launch(&[("V", "a\nb")]));
        assert_eq!(broken.is_err(), one_line, "{}", format.name());
        for name in ["", "1V", "A-B", "A B", "Ä"] {
            let error = write(format, &launch(&[(name, "x")])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name}");
        }
        assert!(write(format, &launch(&[("V", "\0")])).is_err());
    }
}

#[test]
fn files_without_variables_are_complete() {
    assert!(text(Format::Compose, &[]).contains("environment: {}\n"));
    assert!(text(Format::Kubernetes, &[]).contains("env: []\n"));
}

#[test]
fn several_hosts_are_rejected_where_a_program_starts_on_one() {
    for format in Format::ALL {
        let several = Launch { hosts: Some(3), ..launch(&[]) };
        let starts_several = matches!(format, Format::Slurm | Format::Kubernetes);
        assert_eq!(write(format, &several).is_ok(), starts_several, "{}", format.name());
    }
}

#[test]
fn a_slurm_job_of_several_hosts_has_one_task_for_each_gpu() {
    let job = |gpus| {
        let several = Launch { hosts: Some(3), gpus, ..launch(&[]) };
        write(Format::Slurm, &several).unwrap().remove(0).text
    };
    for (gpus, tasks) in [(1, 1), (8, 8)] {
        let job = job(gpus);
        assert!(job.contains("#SBATCH --nodes=3\n"), "{job}");
        assert!(job.contains(&format!("#SBATCH --ntasks-per-node={tasks}\n")), "{job}");
        assert!(job.contains(&format!("#SBATCH --gpus-per-node={gpus}\n")), "{job}");
        // With one GPU there is no other way to divide a node.
        assert_eq!(job.contains("local_device_ids=range(8)"), gpus == 8);
    }
}
