"""Classic measures of faithfulness: AOPC, log-odds, localisation."""
